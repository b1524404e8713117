package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/lab/flashsale"
)

// sale is what the flags of flashsale say.
type sale struct {
	servers
	json bool

	variants []subjects.Variant
}

func flashsaleCommand() *cobra.Command {
	s := sale{variants: subjects.All()}
	cmd := &cobra.Command{
		Use:   "flashsale",
		Short: "Sell 10 goods to 30 buyers at once, with each lock and without",
		Long: fmt.Sprintf(`Flashsale sells %d goods to %d buyers who come at once, in %d processes, and shows
what becomes of the goods: with no lock, where it oversells; with each strategy,
blocking (a buyer waits for the lock) and non-blocking (a buyer is refused, and
presses the button again); with an optimistic transaction; and with one atomic
script, which is what a real sale should use.

The Redis is chosen as for compare. A strategy that takes several servers gets
them, or is left out where fewer were given. Keys and locks have names that
nobody else uses, and go away at the end, as the processes do, also after Ctrl-C.`,
			flashsale.Goods, flashsale.Processes*flashsale.Buyers, flashsale.Processes),
		Example: `  lab flashsale                           # a few seconds
  lab flashsale --redis localhost:6379    # on your own Redis
  lab flashsale --json > sale.json        # for programs`,
		Args:    cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return s.check(cmd) },
		RunE:    cli.Does(s.run),
	}
	cmd.Flags().SortFlags = false
	s.flags(cmd)
	cmd.Flags().BoolVar(&s.json, "json", false, "print the results as JSON")
	return cmd
}

func (s *sale) run(cmd *cobra.Command) (err error) {
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	words := stdout // for people
	if s.json {
		words = stderr
	}
	farm, err := s.open(ctx, words, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, farm.Close()) }()
	nodes, err := farm.AtMost(ctx, subjects.Most(subjects.Compared())) // what takes more is left out
	if err != nil {
		return s.gaveUp(ctx, err)
	}
	p := startProgress(stderr)
	report, err := flashsale.Run(ctx, flashsale.Config{
		Servers:  nodes,
		Kind:     farm.Kind(),
		Choice:   s.asAsked(farm.Choice()), // the slow work may have shown that it must be another
		Variants: s.variants,
		Version:  cli.Version(),
		Progress: func(next flashsale.Way, done, all int) {
			p.set(compare.Progress{
				Doing: next.String(),
				Done:  time.Duration(done) * saleCost, Until: time.Duration(done+1) * saleCost, Total: time.Duration(all) * saleCost,
			})
		},
	})
	p.end()
	if e := s.show(stdout, report); e != nil {
		return errors.Join(err, e)
	}
	if err != nil {
		return s.gaveUp(ctx, err)
	}
	return saleVerdict(report)
}

// saleCost is about what one sale takes. It serves for progress alone.
const saleCost = 250 * time.Millisecond

// show prints the report, in one of two ways.
func (s *sale) show(w io.Writer, r *flashsale.Report) error {
	if s.json {
		return printJSON(w, r)
	}
	_, err := io.WriteString(w, renderSale(r, lookOf(w)))
	return err
}

// saleVerdict is an error if the goods went otherwise than the ways promise.
func saleVerdict(r *flashsale.Report) error {
	n := 0
	for _, s := range r.Results {
		if !s.AsWanted() {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("%d of the %d sales ended as they should not, see above", n, len(r.Results))
	}
	return nil
}

// renderSale is the report for people: a table, what became of the goods, and what to
// do in earnest.
func renderSale(r *flashsale.Report, l look) string {
	if len(r.Results) == 0 {
		return "" // nothing to show
	}
	var b strings.Builder
	b.WriteString(l.paint(fmt.Sprintf("FLASH SALE: %d goods, %d buyers at once, in %d processes", r.Goods, r.Buyers, r.Processes), text.Bold) + "\n\n")
	if r.Interrupted {
		b.WriteString(l.paint("!!! INTERRUPTED: what is missing was not tried.", text.Bold, text.FgYellow) + "\n\n")
	}
	if !r.Redis.Comparable {
		b.WriteString(l.paint("!!! THE TIMES ARE NOT COMPARABLE: this is the embedded imitation of Redis.", text.Bold, text.FgRed) + "\n\n")
	}
	b.WriteString(saleTable(r, l) + "\n")
	b.WriteString(l.prose("", saleLegend(r)) + "\n")
	for _, s := range r.Results {
		if !s.AsWanted() {
			b.WriteString(l.prose("!!! ", unexpected(s)) + "\n")
		}
	}
	for _, s := range saleOutcome(r) {
		b.WriteString(l.prose("", s))
	}
	if s := saleAdvice(r); s != "" {
		b.WriteString("\n" + l.prose("→ ", s))
	}
	return b.String()
}

// saleTable has a line for each way, under the form that it has.
func saleTable(r *flashsale.Report, l look) string {
	t := newTable()
	head := table.Row{"", "sold", "left", "refused", "tries", "time", "commands"}
	gaveUp := slices.ContainsFunc(r.Results, func(s flashsale.Result) bool { return s.GaveUp > 0 })
	if gaveUp {
		head = append(head, "gave up")
	}
	t.AppendHeader(head)
	var configs []table.ColumnConfig
	for i := range head[1:] {
		configs = append(configs, table.ColumnConfig{Number: i + 2, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
	for _, s := range r.Results {
		line := table.Row{s.Name, fmt.Sprintf("%d %s", s.Sold, saleMark(s, l)), s.Left, s.Refused, s.Attempts, compare.Micros(1000 * s.Took), s.Commands}
		if gaveUp {
			line = append(line, s.GaveUp)
		}
		t.AppendRow(line)
	}

	// The forms' titles run over the columns, so they are put in afterwards.
	var b strings.Builder
	title := ""
	for i, line := range strings.Split(t.Render(), "\n") {
		if n := i - 2; n >= 0 { // after the header, and the line under it
			if of := sectionOf(r.Results[n].Way); of != title {
				if title != "" {
					b.WriteString("\n")
				}
				title = of
				b.WriteString(l.paint(title, text.Bold) + "\n")
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// unexpected says what became of a sale that did not go as its way promises.
func unexpected(s flashsale.Result) string {
	words := fmt.Sprintf("%v: NOT EXPECTED: %s, wanted %s", s.Way, s.Verdict, s.Want)
	if s.Failed > 0 {
		words += fmt.Sprintf("; %d buyers failed", s.Failed)
	}
	for _, e := range s.Errors {
		words += "; " + e
	}
	return words + "."
}

func sectionOf(w flashsale.Way) string {
	switch {
	case w.Form == flashsale.Blocking:
		return "BLOCKING LOCK: a buyer waits for it"
	case w.Form == flashsale.NonBlocking:
		return "NON-BLOCKING LOCK: a refused buyer comes back a little later"
	case w.Name == flashsale.NoLock:
		return "NO LOCK: each buyer acts as if alone"
	}
	return "CHECKED BY REDIS: no lock needed"
}

// saleMark is the verdict in one character.
func saleMark(s flashsale.Result, l look) string {
	switch s.Verdict {
	case flashsale.Exact:
		return l.paint("✓", text.FgGreen)
	case flashsale.Oversold:
		return l.paint("✗", text.FgRed)
	}
	return l.paint("!", text.FgRed)
}

// saleLegend says what was done, and what the columns are.
func saleLegend(r *flashsale.Report) string {
	ms := func(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }
	return fmt.Sprintf("A buyer looks at what is left, thinks for %v, and writes. With no lock it thinks until all of its process have looked, "+
		"so that overselling is no matter of luck; the script looks and writes at once. "+
		"sold: orders in Redis (✓ as many as goods, ✗ oversold). left: goods in Redis. "+
		"refused: how often buyers had to try again; one who gets nowhere for %v gives up. "+
		"A shop whose refused buyers went home instead might keep goods that they wanted. "+
		"tries: how often buyers, or their locks, asked Redis; fewer than buyers where a process hands its lock from one buyer to the next without asking. "+
		"commands: what they sent, once connected.",
		ms(r.Think), ms(r.Patience))
}

// saleOutcome says in words what became of the goods.
func saleOutcome(r *flashsale.Report) (words []string) {
	locks, exact := 0, 0
	for _, s := range r.Results {
		if s.Form != "" {
			locks++
			if s.Verdict == flashsale.Exact {
				exact++
			}
		}
		if s.Name == flashsale.NoLock && s.Oversold > 0 {
			words = append(words, fmt.Sprintf("OVERSOLD with no lock: %d orders for %d goods, and %d still on the books.", s.Sold, r.Goods, s.Left))
		}
	}
	switch {
	case locks > 0 && exact == locks:
		tried := ", blocking and non-blocking"
		if r.Interrupted {
			tried = " that was tried"
		}
		words = append(words, fmt.Sprintf("EXACT with every lock%s: %d orders, no goods left.", tried, r.Goods))
	case locks > 0:
		words = append(words, fmt.Sprintf("EXACT with %d of %d locks only.", exact, locks))
	}
	for _, w := range r.LeftOut {
		words = append(words, fmt.Sprintf("LEFT OUT: %s takes %d servers, and %d %s given.", w.Name, w.Servers, r.Redis.Servers, plural(r.Redis.Servers, "was", "were")))
	}
	return words
}

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// saleAdvice is the honest conclusion, with the figures of this run.
func saleAdvice(r *flashsale.Report) string {
	var script, quickest *flashsale.Result
	for i := range r.Results {
		s := &r.Results[i]
		switch {
		case !s.AsWanted():
		case s.Name == flashsale.AtomicScript:
			script = s
		case s.Form != "" && (quickest == nil || s.Took < quickest.Took):
			quickest = s
		}
	}
	if script == nil || quickest == nil {
		return ""
	}
	s := "A real flash sale should use the one atomic script and no lock: nobody waits, nobody tries twice, and each buyer costs one command"
	if !r.Redis.Comparable {
		return s + "."
	}
	return s + fmt.Sprintf(" (here %d in %s; the quickest lock, %v, took %d in %s, as only one buyer at a time may think).",
		script.Commands, compare.Micros(1000*script.Took), quickest.Way, quickest.Commands, compare.Micros(1000*quickest.Took))
}
