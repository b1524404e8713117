package compare

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/lockstrategies/locks/conformance"
)

// A Rating is what the suite said.
type Rating string

const (
	// Kept: nothing was found against it.
	Kept Rating = "kept"
	// Weak: the strategy is known to lack it, and the suite has shown that.
	Weak Rating = "weak"
	// Absent: the strategy does not offer it.
	Absent Rating = "absent"
	// Failed: the trial ended otherwise than the strategy claims.
	Failed Rating = "failed"
	// Unclear: the machine was too slow, each time that the trial was held.
	Unclear Rating = "unclear"
	// Unknown: it was not looked at.
	Unknown Rating = ""
)

// ratings are all that there are, in the order of a legend.
var ratings = []struct {
	Rating
	mark, meaning string
}{
	{Kept, "✓", "kept"},
	{Weak, "✗", "a weakness seen in this run"},
	{Absent, "–", "not offered"},
	{Failed, "!", "failed and should not have"},
	{Unclear, "?", "the machine was too slow to say"},
	{Unknown, "·", "not looked at"},
}

// words are the verdict in one character, and what that stands for.
func (v Rating) words() (mark, meaning string) {
	for _, r := range ratings {
		if r.Rating == v {
			return r.mark, r.meaning
		}
	}
	panic("compare: there is no rating " + string(v))
}

// Mark is the verdict in one character.
func (v Rating) Mark() string { mark, _ := v.words(); return mark }

// Meaning says what a verdict's mark stands for.
func (v Rating) Meaning() string { _, meaning := v.words(); return meaning }

// A Guarantee is a row: what a user asks of a lock, and what the suite said.
type Guarantee struct {
	Title      string     `json:"guarantee"`
	Verdict    Rating     `json:"verdict"`
	Properties []Property `json:"properties"`
}

// A Property is one trial of the suite.
type Property struct {
	Name    string `json:"name"`
	Clause  string `json:"clause"`
	Verdict Rating `json:"verdict"`

	// Reason says why a weakness is known, why the trial does not apply, or how late the machine was.
	Reason string `json:"reason,omitempty"`
	// Evidence is what was observed, and what was wanted.
	Evidence string `json:"evidence,omitempty"`
	// History is how it came about, call by call.
	History []string `json:"history,omitempty"`
	Took    Millis   `json:"took_ms,omitempty"`
}

// atOnce is how many trials are held at once. Most of their time they wait for a TTL
// to end, but too many would make the machine too slow for the short ones.
const atOnce = 16

// judge holds the suite's trials on all variants. It holds a trial again, alone, if the machine was too
// slow the first time. Columns are complete or not: a trial that ctx's end prevented is Unknown. step gets
// the number of those that are done. Its error says which server is gone.
func judge(ctx context.Context, c Config, step func(done, all int)) ([][]Guarantee, error) {
	servers, contestants := c.Servers, c.contestants()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	type trial struct {
		subject conformance.Subject
		store   bool // it is not on Redis
		p       conformance.Property
		out     *Property
	}
	var together, alone []trial
	rows := make([][]Guarantee, len(contestants))
	properties := map[string]conformance.Property{}
	for _, p := range conformance.Properties() {
		properties[p.Name] = p
	}
	held := make([]conformance.Subject, len(contestants))
	var locks sync.Map // of the trials of this run, by trialID: others may hold trials on the same servers
	defer sweepOurs(ctx, servers, trialName, func(key string) bool {
		id := trialID.FindString(key)
		_, ours := locks.Load(id)
		return id != "" && ours
	})
	for i, one := range contestants {
		held[i] = one.subject
		evict := held[i].Evict
		held[i].Evict = func(ctx context.Context, key string) error { // each trial ends with that of its lock
			locks.Store(trialID.FindString(key), true)
			return evict(ctx, key)
		}
		held[i].ChildArgs = []string{} // main calls subjects.Child
		rows[i] = make([]Guarantee, len(groups))
		for j, g := range groups {
			rows[i][j] = Guarantee{Title: g.title, Properties: make([]Property, len(g.properties))}
			for k, name := range g.properties {
				p := properties[name]
				t := trial{subject: held[i], store: len(one.servers) == 0, p: p, out: &rows[i][j].Properties[k]}
				*t.out = Property{Name: p.Name, Clause: p.Clause}
				if c.titles != nil && !slices.Contains(c.titles, g.title) {
					continue
				}
				if p.Alone {
					alone = append(alone, t)
				} else {
					together = append(together, t)
				}
			}
		}
	}

	all := len(together) + len(alone)
	step(0, all)
	var mu sync.Mutex // step is called by one at a time
	done := 0
	var late []trial // to be held again
	hold := func(t trial, last bool) {
		if ctx.Err() != nil {
			return
		}
		r := c.check(ctx, t.subject, t.p)
		if ctx.Err() != nil {
			return // it may have ended for that reason alone
		}
		p := propertyOf(r)
		if t.store && hookless.MatchString(p.Reason) {
			p.Verdict = elsewhere
		}
		if p.Verdict == Unclear && !last {
			mu.Lock()
			defer mu.Unlock()
			late = append(late, t)
			return
		}
		*t.out = p
		if r.Status == conformance.Broken && !t.store {
			if err := pingAll(ctx, servers); err != nil {
				giveUp(err) // all other trials would fail, too
			}
		}
		mu.Lock()
		defer mu.Unlock()
		done++
		step(done, all)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, t := range together {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			hold(t, false)
		})
	}
	wg.Wait()
	for _, t := range alone {
		hold(t, false)
	}
	for _, t := range late {
		hold(t, true)
	}
	for i := range rows {
		for j, g := range groups {
			row := &rows[i][j]
			row.Properties = slices.DeleteFunc(row.Properties, func(p Property) bool { return p.Verdict == elsewhere })
			if row.Verdict = verdictOf(row.Properties); len(row.Properties) == 0 {
				row.Verdict = Unknown
			}
			if row.Verdict == Kept && g.offered != nil && !g.offered(held[i]) {
				row.Verdict = Absent // the suite has checked that, too
			}
		}
	}
	return rows, context.Cause(ctx)
}

// trialName begins the names of all locks of the suite. A text of rand.Text follows, which tells trials apart.
const trialName = "conformance "

var trialID = regexp.MustCompile(trialName + "[A-Z2-7]{26}")

// elsewhere: the trial of a store needs a hook, which only the store's own tests have.
const elsewhere Rating = "elsewhere"

// hookless is the reason of such a trial.
var hookless = regexp.MustCompile(`^Subject\.(OpenGated|Evict|BreakWatches|Forge|Spoil|Leftovers) is nil`)

// inconclusive begins the reason of a trial that the suite skipped since the machine was slow.
const inconclusive = "INCONCLUSIVE"

func propertyOf(r conformance.Result) Property {
	p := Property{
		Name:   r.Property.Name,
		Clause: r.Property.Clause,
		Reason: r.Reason,
		Took:   MillisOf(r.Took),
	}
	switch r.Status {
	case conformance.Kept:
		p.Verdict = Kept
		return p
	case conformance.Skipped:
		p.Verdict = Absent
		if strings.HasPrefix(r.Reason, inconclusive) {
			p.Verdict = Unclear
		}
		return p
	case conformance.Excused:
		p.Verdict = Weak
	default:
		p.Verdict = Failed
	}
	if r.Err != nil {
		p.Evidence = r.Err.Error()
	}
	for _, e := range r.History {
		line := fmt.Sprintf("%v %s", e.At, e.Text)
		if e.Times > 1 {
			line += fmt.Sprintf(" (%d times)", e.Times)
		}
		p.History = append(p.History, line)
	}
	return p
}

// verdictOf is the worst that is known of any property.
func verdictOf(ps []Property) Rating {
	for _, worst := range []Rating{Failed, Weak, Unknown, Unclear, Kept} {
		if slices.ContainsFunc(ps, func(p Property) bool { return p.Verdict == worst }) {
			return worst
		}
	}
	return Absent
}

// Markdown is the table of guarantees in Markdown: what is the same on every
// machine, without timings.
func Markdown(columns []Column) string {
	var b strings.Builder
	b.WriteString("| |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat(":-:|", len(columns)) + "\n")
	for i, g := range groups {
		fmt.Fprintf(&b, "| %s |", g.title)
		for _, c := range columns {
			mark := Unknown.Mark()
			if i < len(c.Guarantees) {
				mark = c.Guarantees[i].Verdict.Mark()
			}
			fmt.Fprintf(&b, " %s |", mark)
		}
		b.WriteString("\n")
	}
	return b.String()
}
