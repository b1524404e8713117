package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lab/faults"
)

// theatre is what the flags of faults say.
type theatre struct {
	servers
	play       bool
	strategies []string

	rows []faults.Fault
}

func faultsCommand() *cobra.Command {
	var t theatre
	cmd := &cobra.Command{
		Use:   "faults [words of a fault's name]",
		Short: "Show what each lock does when things break",
		Long: `Faults prints a matrix: what becomes of each lock when a server restarts or
freezes, when the network loses a reply, when a clock jumps or a holder dies; and
in a sentence, why. With words of a fault's name it prints those rows only.

With --play it does not repeat what is known but breaks real servers before your
eyes: it starts some of its own, plays the rows on each strategy, tells step by
step what happens, and comes to its verdict by what it has seen. It fails if that is
another than the matrix says. Without words it plays all rows, which is hundreds of
plays, one after another. docs/learn/faults.md has the matrix, too.`,
		Example: `  lab faults                                    # the matrix
  lab faults power loss                         # its rows on power loss
  lab faults --play restart --strategy redlock  # see it happen`,
		PreRunE: t.understand,
		RunE:    cli.Does(t.run),
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&t.play, "play", false, "break real servers, and tell what happens")
	cmd.Flags().StringSliceVar(&t.strategies, "strategy", nil, "with --play: on these `strategies` only; a variant is played if it is named, in rows where it differs")
	cmd.Flags().BoolVar(&t.docker, "docker", false, "with --play: demand Docker containers")
	return cmd
}

// rowsOf are the rows whose name has all the words.
func rowsOf(words []string) []faults.Fault {
	return slices.DeleteFunc(faults.All(), func(f faults.Fault) bool {
		return slices.ContainsFunc(words, func(w string) bool {
			return !strings.Contains(strings.ToLower(f.Name), strings.ToLower(w))
		})
	})
}

// understand finds what cannot be done before anything is started.
func (t *theatre) understand(cmd *cobra.Command, words []string) error {
	t.rows = rowsOf(words)
	if len(t.rows) == 0 {
		return fmt.Errorf("no fault has %q in its name: 'lab faults' lists them", strings.Join(words, " "))
	}
	if set := cli.Given(cmd.Flags().Changed, "strategy", "docker"); len(set) > 0 && !t.play {
		return fmt.Errorf("%s: only with --play: the matrix is printed whole", strings.Join(set, " and "))
	}
	var known, played []string
	for _, c := range faults.Columns() { // variants too
		known = append(known, c.Name)
		if slices.ContainsFunc(t.rows, func(f faults.Fault) bool { cell, told := f.Cells[c.Name]; return told && !cell.Derived }) {
			played = append(played, c.Name)
		}
	}
	for _, s := range t.strategies {
		switch {
		case !slices.Contains(known, s):
			return fmt.Errorf("--strategy %s: allowed are %s", s, strings.Join(known, ", "))
		case !slices.Contains(played, s): // or it would succeed without a play
			return fmt.Errorf("%q: no play for %s: allowed are %s", strings.Join(words, " "), s, strings.Join(played, ", "))
		}
	}
	return nil
}

const playLegend = "Double line ║: believes it holds the lock. Dotted: paused (┇: and still believes it). ━: two hold the lock, or worse. " +
	"⇒: what the verdict depends on. Time in ms."

// run prints the matrix, or plays its rows, and tells what happens as soon as each is over.
func (t *theatre) run(cmd *cobra.Command) (err error) {
	ctx, w := cmd.Context(), cmd.OutOrStdout()
	l := lookOf(w)
	if !t.play {
		_, err := io.WriteString(w, renderFaults(t.rows, l))
		return err
	}
	farm, err := t.open(ctx, w, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	stage := faults.Open(farm)
	defer func() { err = errors.Join(err, stage.Close(), farm.Close()) }()
	fmt.Fprint(w, "\n", l.paint(l.prose("", playLegend), text.Faint))
	played, others := 0, 0
	var cannot []string
	for _, f := range t.rows {
		fmt.Fprint(w, "\n", l.paint(f.Name, text.Bold), "\n", l.prose("", f.Story))
		for _, c := range faults.Columns() {
			cell, told := f.Cells[c.Name]
			if !told || len(t.strategies) > 0 && !slices.Contains(t.strategies, c.Name) {
				continue
			}
			if cell.Derived {
				fmt.Fprintf(w, "\n%s\n%s", l.paint(c.Name, text.Bold), l.prose(verdictMark(cell.Verdict, l)+" ", cell.Reason+"."))
				continue
			}
			if err := stage.Ready(ctx, f, c); errors.Is(err, redistest.ErrImpossible) {
				cannot = append(cannot, err.Error())
				fmt.Fprintf(w, "\n%s\n%s", l.paint(c.Name, text.Bold), l.prose("? ", "not played: "+t.asAsked(err.Error())))
				continue
			} else if err != nil {
				return t.gaveUp(ctx, err)
			}
			played++
			out := stage.See(ctx, f, c, cell.Verdict)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			for _, before := range out.Before {
				fmt.Fprintf(w, "\n%s\n%s", l.paint(c.Name, text.Bold), l.prose("↻ ", "played again, as it ended like this: "+before))
			}
			fmt.Fprintf(w, "\n%s\n%s\n%s", l.paint(c.Name, text.Bold), out.Trace.Diagram(l.width, l.style), l.prose(verdictMark(out.Verdict, l)+" ", out.String()))
			if out.Err != nil || out.Verdict != cell.Verdict {
				others++
				fmt.Fprint(w, l.prose("! ", fmt.Sprintf("the matrix says: %v: %s.", cell.Verdict, cell.Reason)))
			}
		}
	}
	if played == 0 && len(cannot) > 0 {
		return errors.New("nothing was played: " + t.asAsked(cannot[0]))
	}
	if others > 0 {
		return fmt.Errorf("%d plays ended otherwise than the matrix says, see above", others)
	}
	return nil
}

func verdictMark(v faults.Verdict, l look) string {
	return l.paint(v.Mark(), map[faults.Verdict]text.Color{
		faults.Kept: text.FgGreen, faults.Unavailable: text.FgYellow, faults.Detected: text.FgCyan, faults.Violated: text.FgRed,
	}[v])
}

// renderFaults is the matrix: a table, and the reasons.
func renderFaults(rows []faults.Fault, l look) string {
	var b strings.Builder
	m := marks{title: "WHAT BREAKS"}
	for _, c := range faults.Strategies() {
		m.names = append(m.names, c.Name)
	}
	for i, f := range rows {
		if i > 0 && rows[i-1].Group != f.Group {
			m.add("", nil) // the groups of docs/learn/faults.md
		}
		var cells []string
		for _, c := range faults.Strategies() {
			cells = append(cells, verdictMark(f.Cells[c.Name].Verdict, l))
		}
		m.add(f.Name, cells)
	}
	b.WriteString(m.render(l))
	for _, v := range faults.Verdicts() {
		b.WriteString(l.prose(verdictMark(v, l)+" ", v.String()+": "+v.Meaning()))
	}
	for _, f := range rows {
		b.WriteString("\n" + l.paint(f.Name, text.Bold) + "\n" + l.prose("", f.Story))
		for _, x := range f.Findings() {
			b.WriteString(l.prose("  "+verdictMark(x.Verdict, l)+" ", strings.Join(x.Columns, ", ")+": "+x.Reason+"."))
		}
	}
	return b.String()
}
