package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// benchWriter writes measurements in the Go benchmark format, for benchstat.
type benchWriter struct {
	w      *benchfmt.Writer
	config []benchfmt.Config
}

func newBenchWriter(w io.Writer, m machine, seed uint64) *benchWriter {
	l := &benchWriter{w: benchfmt.NewWriter(w)}
	for _, c := range [][2]string{{"goos", runtime.GOOS}, {"goarch", runtime.GOARCH}, {"pkg", "github.com/lockstrategies/locks/lab/peers"}, {"cpu", m.cpu}, {"redis", m.redis}, {"seed", fmt.Sprint(seed)}} {
		l.config = append(l.config, benchfmt.Config{Key: c[0], Value: []byte(c[1]), File: true})
	}
	return l
}

func (l *benchWriter) write(scenario string, e entry, v values) error {
	r := &benchfmt.Result{
		Config: l.config,
		Name:   benchfmt.Name(fmt.Sprintf("%s/%s-%d", camel(scenario), e.label(), runtime.GOMAXPROCS(0))),
		Iters:  1,
	}
	for _, unit := range slices.Sorted(maps.Keys(v)) {
		r.Values = append(r.Values, benchfmt.Value{Value: v[unit], Unit: unit})
	}
	return l.w.Write(r)
}

// section is a scenario's part of the page, without its heading.
func (o *outcome) section(m machine, quick bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", o.about)
	if o.xs == nil {
		if o.drawn() {
			fmt.Fprintf(&b, "![%s](%s)\n\n", o.title, o.file())
		}
		o.table(&b)
		o.bases(&b)
	} else {
		o.growth(&b)
	}
	short := ""
	if quick {
		short = " shortened"
	}
	repetitions, cover := "repetitions", ""
	if o.reps == 1 {
		repetitions = "repetition"
	} else {
		cover = fmt.Sprintf("; intervals cover the median with %.0f %%", 100*summarize(make([]float64, o.reps)).cover)
	}
	fmt.Fprintf(&b, "%d%s %s, %s, on %s%s.\n", o.reps, short, repetitions, m.date, m.redis, cover)
	return b.String()
}

// of is the column for a contestant, over the repetitions.
func (o *outcome) of(who string, c column) summary { return summarize(o.each(who, c)) }

// each is the same by repetition. A contestant of the earlier build is divided by that build's base.
func (o *outcome) each(who string, c column) []float64 {
	v := o.series(who, 0, c.unit)
	if c.over == nil {
		return v
	}
	name, base := c.over(o, c.unit)
	if same := name + atBefore; strings.HasSuffix(who, atBefore) && slices.Contains(o.who, same) {
		base = o.series(same, 0, c.unit)
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
			s := o.of(who, c)
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
		for _, s := range o.series(who, 0, unit) {
			if s > 0 {
				n++
			}
		}
		if n > 0 {
			said += fmt.Sprintf(" (%s in %d of %d)", unit, n, o.reps)
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

// A measuredAim is an aim and what was measured.
type measuredAim struct {
	aim
	got summary
}

// met reports whether the median is within the bound; measured, whether there is one.
func (v measuredAim) met() bool {
	if v.least {
		return v.got.center >= v.bound
	}
	return v.got.center <= v.bound
}

func (v measuredAim) measured() bool { return !math.IsNaN(v.got.center) }

func (v measuredAim) String() string {
	sign := "≤"
	if v.least {
		sign = "≥"
	}
	if math.IsNaN(v.bound) {
		return v.who + ": " + v.column
	}
	return fmt.Sprintf("%s: %s %s %s", v.who, v.column, sign, number(v.bound))
}

// verdicts judges the aims by the columns that they name.
func (o *outcome) verdicts() (vs []measuredAim) {
	for _, a := range o.aims {
		i := slices.IndexFunc(o.columns, func(c column) bool { return c.title == a.column })
		v := measuredAim{aim: a, got: summarize(nil)}
		if slices.Contains(o.present(), a.who) {
			v.got = o.of(a.who, o.columns[i])
		}
		vs = append(vs, v)
	}
	return vs
}

// balance says how many aims are met and lists those that are not, of all scenarios.
func balance(all []*outcome) string {
	var missed strings.Builder
	met, judged := 0, 0
	for _, o := range all {
		for _, v := range o.verdicts() {
			if !v.measured() {
				continue
			}
			if judged++; v.met() {
				met++
			} else {
				fmt.Fprintf(&missed, "| %s | %s | %s |\n", o.title, v, v.got)
			}
		}
	}
	said := fmt.Sprintf("%d of %d aims are met.\n", met, judged)
	if met < judged {
		said += "\n| missed | aim | measured |\n|---|---|--:|\n" + missed.String()
	}
	return said
}

// growth is a table for each panel of the plot.
func (o *outcome) growth(b *strings.Builder) {
	fmt.Fprintf(b, "![%s](%s)\n\n", o.title, o.file())
	for _, p := range o.panels {
		fmt.Fprintf(b, "| %s; %s: |", p.y, p.x)
		for _, x := range o.xs {
			fmt.Fprintf(b, " %s |", grouped(int64(x)))
		}
		b.WriteString("\n|---|" + strings.Repeat("--:|", len(o.xs)) + "\n")
		for _, who := range o.present() {
			fmt.Fprintf(b, "| %s |", who)
			for _, x := range o.xs {
				fmt.Fprintf(b, " %s |", number(summarize(o.series(who, x, p.unit)).center))
			}
			b.WriteString("\n")
		}
		b.WriteString("\n")
	}
}

// rewrite puts text between the marks of a section, <!-- name --> and <!-- /name -->.
func rewrite(page, name, text string) (string, error) {
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->\n"
	head, rest, ok := strings.Cut(page, begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("the page has no %q and %q, each on a line of its own", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return head + begin + "\n" + strings.TrimSpace(text) + "\n\n" + end + tail, nil
}
