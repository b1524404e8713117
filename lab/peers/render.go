package main

import (
	"fmt"
	"slices"
	"strings"
)

// section is a scenario's table, and what it is of.
func (o *outcome) section(on string, quick bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", o.about)
	o.table(&b)
	o.bases(&b)
	short, cover := "", ""
	if quick {
		short = ", shortened"
	}
	if o.reps() > 1 {
		cover = fmt.Sprintf("; intervals cover the median with %.0f %%", 100*summarize(make([]float64, o.reps())).cover)
	}
	fmt.Fprintf(&b, "Repetitions: %d%s; %s%s.\n", o.reps(), short, on, cover)
	return b.String()
}

// each is the column for a contestant, by repetition. A contestant of the earlier build is divided by that build's base.
func (o *outcome) each(who string, c column) []float64 {
	v := o.series(who, c.unit)
	if c.over == nil {
		return v
	}
	name, base := c.over(o, c.unit)
	if same := name + atBefore; strings.HasSuffix(who, atBefore) && slices.Contains(o.who, same) {
		base = o.series(same, c.unit)
	}
	return paired(v, base)
}

func (o *outcome) table(b *strings.Builder) {
	var head, rule []string
	for _, c := range o.columns {
		head, rule = append(head, c.title), append(rule, "--:")
	}
	fmt.Fprintf(b, "| | %s |\n|---|%s|\n", strings.Join(head, " | "), strings.Join(rule, "|"))
	for _, who := range o.present() {
		fmt.Fprintf(b, "| %s%s |", who, o.stumbles(who))
		for i, c := range o.columns {
			s := summarize(o.each(who, c))
			if i > 0 && c.over == nil {
				fmt.Fprintf(b, " %s |", number(s.center))
			} else {
				fmt.Fprintf(b, " %s |", s)
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// stumbles says how often a contestant has not come to an end.
func (o *outcome) stumbles(who string) (said string) {
	for _, unit := range []string{stuck, failed} {
		n := 0
		for _, s := range o.series(who, unit) {
			if s > 0 {
				n++
			}
		}
		if n > 0 {
			said += fmt.Sprintf(" (%s in %d of %d)", unit, n, o.reps())
		}
	}
	return said
}

// bases names the peers that others are divided by.
func (o *outcome) bases(b *strings.Builder) {
	var said []string
	for _, c := range o.columns {
		if c.over == nil {
			continue
		}
		who, _ := c.over(o, c.unit)
		_, what, ok := strings.Cut(c.title, "÷ ")
		line := fmt.Sprintf("the %s is %s", what, who)
		if ok && who != "" && what != who && !slices.Contains(said, line) {
			said = append(said, line)
		}
	}
	if len(said) > 0 {
		text := strings.Join(said, ", ")
		fmt.Fprintf(b, "%s%s.\n\n", strings.ToUpper(text[:1]), text[1:])
	}
}
