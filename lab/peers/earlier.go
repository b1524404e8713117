package main

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// earlier are the repetitions of each scenario in the output of earlier runs. So many short runs
// make a long one, and a page can be rewritten from kept output.
type earlier struct {
	repetitions map[string][]map[entry]values // by the scenario's name
	redis, cpu  string                        // where the last of them was measured
}

// readEarlier reads the output of one or several runs.
func readEarlier(file string) (e earlier, err error) {
	f, err := os.Open(file)
	if err != nil {
		return e, err
	}
	defer f.Close()
	return parseLines(f, file)
}

// parseLines puts measurements together that were made in the same repetition: there each
// contestant comes once, and two runs differ by their seed. Other output
// is skipped.
func parseLines(in io.Reader, file string) (earlier, error) {
	e := earlier{repetitions: map[string][]map[entry]values{}}
	names := map[string]string{}
	for _, s := range append(compared(), scenarios()...) {
		names[camel(s.name)] = s.name
	}
	seeds := map[string]string{}
	r := benchfmt.NewReader(in, file)
	for r.Scan() {
		res, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		base, parts := res.Name.Parts()
		name := names[string(base)]
		if name == "" || len(parts) < 2 {
			continue // another benchmark
		}
		at, ok := parseEntry(parts)
		if !ok {
			continue
		}
		v := values{}
		for _, value := range res.Values {
			v[value.Unit] = value.Value
		}
		e.redis, e.cpu = res.GetConfig("redis"), res.GetConfig("cpu")
		all := e.repetitions[name]
		if n := len(all); n == 0 || seeds[name] != res.GetConfig("seed") || all[n-1][at] != nil {
			all = append(all, map[entry]values{})
		}
		all[len(all)-1][at] = v
		e.repetitions[name], seeds[name] = all, res.GetConfig("seed")
	}
	if r.Err() == nil && len(e.repetitions) == 0 {
		return e, errors.New(file + ": there are no measurements of these scenarios")
	}
	return e, r.Err()
}

// parseEntry reads what label has written: /fairqueue/x=8-2, or without the size.
func parseEntry(parts [][]byte) (at entry, ok bool) {
	last := len(parts) - 1
	if len(parts[last]) > 0 && parts[last][0] == '-' { // GOMAXPROCS
		last--
	}
	at.who = strings.TrimPrefix(string(parts[0]), "/")
	if last == 1 {
		x, found := strings.CutPrefix(string(parts[1]), "/x=")
		n, err := strconv.Atoi(x)
		if !found || err != nil {
			return at, false
		}
		at.x = n
	}
	return at, known(at.who) && last <= 1
}

// add puts the earlier repetitions of the scenario before those of this run.
func (e earlier) add(o *outcome) {
	past := e.repetitions[o.name]
	for at := range o.got {
		var all []values
		for _, rep := range past {
			all = append(all, rep[at])
		}
		o.got[at] = append(all, o.got[at]...)
	}
	o.reps += len(past)
}
