package faults

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/template"
)

// Strategies are the columns that are no variants.
func Strategies() []Column {
	return slices.DeleteFunc(Columns(), func(c Column) bool { return c.Of != "" })
}

// A Finding is a verdict with its reason, and the columns that share both.
type Finding struct {
	Columns []string
	Cell
}

// Findings are a row's cells, those that say the same together.
func (f Fault) Findings() (all []Finding) {
	for _, c := range Columns() {
		cell, ok := f.Cells[c.Name]
		if !ok {
			continue
		}
		if i := slices.IndexFunc(all, func(x Finding) bool { return x.Cell == cell }); i >= 0 {
			all[i].Columns = append(all[i].Columns, c.Name)
		} else {
			all = append(all, Finding{[]string{c.Name}, cell})
		}
	}
	return all
}

// heads are the columns of the page: strategies whose verdicts are equal in every row share one.
var heads = sync.OnceValue(func() (all [][]Column) {
	rows := All()
	same := func(a, b Column) bool {
		return !slices.ContainsFunc(rows, func(f Fault) bool { return f.Cells[a.Name].Verdict != f.Cells[b.Name].Verdict })
	}
	for _, c := range Strategies() {
		if i := slices.IndexFunc(all, func(h []Column) bool { return same(h[0], c) }); i >= 0 {
			all[i] = append(all[i], c)
		} else {
			all = append(all, []Column{c})
		}
	}
	return all
})

// An Option is the variants that differ by the same thing, and the strategies that have it.
type Option struct {
	Name, Summary string
	Of            []string
}

// options are the variants that some row tells.
var options = sync.OnceValue(func() (all []Option) {
	rows := All()
	for _, c := range Columns() {
		if c.Of == "" || !slices.ContainsFunc(rows, func(f Fault) bool { _, told := f.Cells[c.Name]; return told }) {
			continue
		}
		name := strings.TrimPrefix(c.Name, c.Of)
		if i := slices.IndexFunc(all, func(o Option) bool { return o.Name == name }); i >= 0 {
			all[i].Of = append(all[i].Of, c.Of)
		} else {
			all = append(all, Option{name, c.Summary, []string{c.Of}})
		}
	}
	return all
})

// Unanimous reports whether every lock keeps what it promises: then the page gives no reasons.
func (f Fault) Unanimous() bool {
	for _, cell := range f.Cells {
		if cell.Verdict != Kept {
			return false
		}
	}
	return true
}

// Alike is the verdict of every strategy, if all have the same one: then the page needs no row for them.
func (f Fault) Alike() (one *Verdict) {
	for _, c := range Strategies() {
		v := f.Cells[c.Name].Verdict
		if one == nil {
			one = &v
		} else if *one != v {
			return nil
		}
	}
	return one
}

// Differs reports whether some fault of the group sets strategies apart.
func (g Group) Differs() bool {
	return slices.ContainsFunc(g.Faults, func(f Fault) bool { return f.Alike() == nil })
}

// Who names the columns in few words: most strategies by those that are missing, and variants by their option.
func (x Finding) Who() string {
	var in, out, names []string
	for _, c := range Strategies() {
		if slices.Contains(x.Columns, c.Name) {
			in = append(in, c.Name)
		} else {
			out = append(out, c.Name)
		}
	}
	switch {
	case len(out) == 0:
		names = []string{"all"}
	case len(out)+1 < len(in):
		names = []string{"all but " + strings.Join(out, ", ")}
	default:
		names = in
	}
	for _, o := range options() {
		var some []string
		for _, of := range o.Of {
			if name := of + o.Name; slices.Contains(x.Columns, name) {
				some = append(some, name)
			}
		}
		if len(some) == len(o.Of) {
			some = []string{o.Name}
		}
		names = append(names, some...)
	}
	return strings.Join(names, ", ")
}

//go:embed faults.md.tmpl
var page string

// Markdown is docs/learn/faults.md.
func Markdown() string {
	t := template.Must(template.New("faults.md").Funcs(template.FuncMap{
		"groups": Groups, "heads": heads, "join": strings.Join, "options": options, "verdicts": Verdicts,
	}).Parse(page))
	var b strings.Builder
	if err := t.Execute(&b, nil); err != nil {
		panic(err) // the page is part of the program, and a test writes it
	}
	return b.String()
}

// String is the verdict, and what it depends on.
func (o Outcome) String() string {
	if o.Err != nil {
		seen := ""
		if len(o.Saw) > 0 {
			seen = fmt.Sprintf(" (but %v: %s)", o.Verdict, strings.Join(o.Saw, "; "))
		}
		return fmt.Sprintf("no verdict: %v%s", o.Err, seen)
	}
	if len(o.Saw) == 0 {
		return o.Verdict.String()
	}
	return fmt.Sprintf("%v: %s", o.Verdict, strings.Join(o.Saw, "; "))
}
