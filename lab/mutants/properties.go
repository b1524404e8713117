package main

import (
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed properties.txt
var propertiesText string

// A conviction is a property of the conformance suite that must convict a mutant, alone.
type conviction struct {
	property string
	judge    string // the package
	test     string // the property is a subtest of it
	mutant   string // by name
}

func convictions() (all []conviction) {
	for l := range strings.Lines(propertiesText) {
		head, mutant, ok := strings.Cut(strings.TrimSpace(l), " | ")
		if words := strings.Fields(head); ok && len(words) == 3 {
			all = append(all, conviction{words[0], words[1], words[2], mutant})
		}
	}
	return all
}

// convict plays each property on its mutant, and without a fault.
func convict(root string) (failed error) {
	for _, s := range subjects {
		var here []conviction
		s.judges = nil
		for _, c := range convictions() {
			if filepath.Dir(strings.Fields(c.mutant)[0]) == s.dir {
				here = append(here, c)
				if j := (judge{dir: c.judge}); !slices.Contains(s.judges, j) {
					s.judges = append(s.judges, j)
				}
			}
		}
		if len(here) > 0 && interrupted.Err() == nil {
			failed = errors.Join(failed, convictIn(root, s, here))
		}
	}
	return failed
}

// convictIn plays the properties whose mutants are of one subject.
func convictIn(root string, s subject, all []conviction) error {
	work, discard, err := workDir()
	if err != nil {
		return err
	}
	defer discard()
	x, err := prepare(root, work, s)
	if err != nil {
		return err
	}
	for i := range s.judges[1:] {
		if said, err := x.build(i + 1); err != nil {
			return fmt.Errorf("the tests of %s do not compile: %w\n%s", s.judges[i+1].dir, err, said)
		}
	}
	errs := make([]error, len(all))
	parallel(*workers, all, func(i int, c conviction) {
		if errs[i] = x.convict(c); errs[i] == nil {
			fmt.Printf("%s/%s convicts %s\n", c.test, c.property, c.mutant)
		}
	})
	return errors.Join(errs...)
}

func (x *exam) convict(c conviction) error {
	i := slices.IndexFunc(x.mutants, func(m *mutant) bool { return m.name() == c.mutant })
	if i < 0 {
		return fmt.Errorf("%s: there is no mutant %q", c.property, c.mutant)
	}
	m := x.mutants[i]
	t := &test{binary: x.binary(slices.Index(x.judges, judge{dir: c.judge})), dir: filepath.Join(x.root, c.judge), name: c.test + "/" + c.property}
	const limit = 5 * time.Minute // generous: a property has limits of its own
	if end := x.play([]*test{t}, limit); end.fate != survived || !strings.Contains(end.output, "--- PASS: "+t.name) {
		return fmt.Errorf("%s without a fault: %s\n%s", t.name, end.fate, end.output)
	}
	env, discard := x.put(m)
	defer discard()
	if end := x.play([]*test{t}, limit, env...); end.fate != killed || end.by != t.name {
		return fmt.Errorf("%s does not convict %s: %s by %q\n%s", t.name, c.mutant, end.fate, end.by, end.output)
	}
	return nil
}
