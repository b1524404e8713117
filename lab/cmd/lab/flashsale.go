package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

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
		Long: fmt.Sprintf(`Flashsale sells %d goods to %d buyers who come at once, in %d copies of the program
(each with connections and locks of its own), and shows what becomes of the goods:
with no lock, where it oversells; with each strategy,
blocking (a buyer waits for the lock) and non-blocking (a buyer is refused, and
presses the button again); with an optimistic transaction; and with one atomic
script, which is what a real sale should use.

The Redis is chosen as for compare. A strategy that takes several servers gets
them, or is left out where fewer were given. Keys and locks have names that
nobody else uses, and go away at the end, also after Ctrl-C.`,
			flashsale.Goods, flashsale.Copies*flashsale.Buyers, flashsale.Copies),
		Example: `  lab flashsale                           # a few seconds
  lab flashsale --redis localhost:6379    # on your own Redis
  lab flashsale --json > sale.json        # for programs`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return s.check() },
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
		Progress: p.set,
	})
	p.end()
	if s.json {
		err = errors.Join(err, printJSON(stdout, report))
	} else {
		io.WriteString(stdout, renderSale(report, lookOf(stdout)))
	}
	if err != nil {
		return s.gaveUp(ctx, err)
	}
	return saleVerdict(report)
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

// renderSale is the report for people: a table, and what to do in earnest.
func renderSale(r *flashsale.Report, l look) string {
	if len(r.Results) == 0 {
		return "" // nothing to show
	}
	s := warn(!r.Redis.Comparable, r.Interrupted, l) + saleTable(r, l) + "\n" + l.prose("", saleLegend(r)) + "\n"
	for _, x := range r.Results {
		if !x.AsWanted() {
			s += l.prose("!!! ", unexpected(x)) + "\n"
		}
	}
	if len(r.LeftOut) > 0 {
		s += l.prose("", tooFew(r.LeftOut)) + "\n"
	}
	if !r.Interrupted {
		s += l.prose("→ ", "A real flash sale should use the one atomic script and no lock: nobody waits, nobody tries twice, and each buyer costs one command.")
	}
	return s
}

func saleTable(r *flashsale.Report, l look) string {
	head := []string{"", "lock", "sold", "left", "refused", "time", "commands"}
	var rows [][]string
	for _, s := range r.Results {
		mark := l.paint("!", text.FgRed)
		switch s.Verdict {
		case flashsale.Exact:
			mark = l.paint("✓", text.FgGreen)
		case flashsale.Oversold:
			mark = l.paint("✗", text.FgRed)
		}
		refused := fmt.Sprint(s.Refused)
		if s.GaveUp > 0 {
			refused = fmt.Sprintf("%d gave up, %d", s.GaveUp, s.Refused)
		}
		rows = append(rows, []string{
			s.Name, string(s.Form), fmt.Sprintf("%d %s", s.Sold, mark), fmt.Sprint(s.Left), refused,
			compare.Micros(1000 * float64(s.Took)), fmt.Sprint(s.Commands),
		})
	}
	title := fmt.Sprintf("FLASH SALE: %d goods, %d buyers at once, in %d copies of the program", r.Goods, r.Buyers, r.Copies)
	return drawTable(title, head, rows, func(column int) bool { return column > 1 }, l)
}

// unexpected says what became of a sale that did not go as its way promises.
func unexpected(s flashsale.Result) string {
	words := []string{fmt.Sprintf("%v: NOT EXPECTED: %s, wanted %s", s.Way, s.Verdict, s.Want)}
	if s.Failed > 0 {
		words = append(words, fmt.Sprintf("%d buyers failed", s.Failed))
	}
	return strings.Join(append(words, s.Errors...), "; ") + "."
}

// saleLegend says what was done, and what the columns are.
func saleLegend(r *flashsale.Report) string {
	return fmt.Sprintf("A buyer looks at what is left, thinks for %v, and writes. With no lock it thinks until all have looked, "+
		"so that overselling is no matter of luck; the script looks and writes at once. "+
		"lock: a buyer waits for a blocking lock; refused by a non-blocking one, it comes back a little later. "+
		"sold: orders in Redis (✓ as many as goods, ✗ oversold). left: goods in Redis. "+
		"refused: how often buyers had to try again; one who gets nowhere for %v gives up. "+
		"A shop whose refused buyers went home instead might keep goods that they wanted. "+
		"commands: what they sent, once connected.",
		r.Think.Duration(), r.Patience.Duration())
}
