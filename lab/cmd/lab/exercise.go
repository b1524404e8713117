package main

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/lab/exercises"
	reports "github.com/lockstrategies/locks/lab/report"
)

// judging is what the flags of exercise say.
type judging struct {
	servers
	all, solution bool

	chosen []exercises.Exercise
}

func exerciseCommand() *cobra.Command {
	var j judging
	cmd := &cobra.Command{
		Use:   "exercise [number ...]",
		Short: "Judge locks with a mistake, which you put right",
		Long: `Exercise judges the locks in lab/exercises/locks. Each has one mistake, and
you put it right in its file. Without arguments it lists them.

The verdict is that of the conformance suite, which every lock of this module
passes: which promise is broken, what happened, as the lessons draw it, and a hint.
docs/learn/exercises.md leads through them. The exit status is 1 if a promise is
broken.

The Redis is chosen as for compare. The embedded imitation will do.`,
		Example: `  lab exercise              # the list
  lab exercise 3            # judge one, in a few seconds
  lab exercise 3 --solution # what changes
  lab exercise --all        # judge all, a line each`,
		PreRunE: j.choose,
		RunE:    cli.Does(j.run),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&j.all, "all", false, "judge all, a line each")
	f.BoolVar(&j.solution, "solution", false, "show what changes, and judge nothing")
	j.servers.flags(cmd)
	return cmd
}

func (j *judging) choose(cmd *cobra.Command, numbers []string) error {
	if err := j.check(); err != nil {
		return err
	}
	all := exercises.All()
	switch {
	case j.all && (len(numbers) > 0 || j.solution):
		return errors.New("--all judges all exercises: leave out the numbers and --solution, or --all")
	case j.all:
		j.chosen = all
	case len(numbers) == 0 && cli.Given(cmd.Flags().Changed, "solution", "docker", "embedded", "redis") != nil:
		return errors.New("of which exercise? 'lab exercise' lists them")
	}
	for _, n := range numbers {
		i, err := strconv.Atoi(n)
		if err != nil || i < 1 || i > len(all) {
			return fmt.Errorf("there is no exercise %q: allowed are 1 to %d", n, len(all))
		}
		j.chosen = append(j.chosen, all[i-1])
	}
	return nil
}

func (j *judging) run(cmd *cobra.Command) (err error) {
	ctx, stdout := cmd.Context(), cmd.OutOrStdout()
	l := lookOf(stdout)
	switch {
	case len(j.chosen) == 0:
		_, err := io.WriteString(stdout, renderExercises(exercises.All(), l))
		return err
	case j.solution:
		for _, e := range j.chosen {
			source, err := e.Solution()
			if err != nil {
				return err
			}
			io.WriteString(stdout, source+"\n"+l.prose("", "In this project: "+e.Right))
		}
		return nil
	}
	farm, err := j.open(ctx, stdout, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, farm.Close()) }()
	broken := false
	for _, e := range j.chosen {
		v, err := e.Judge(ctx, farm)
		if err != nil {
			return j.gaveUp(ctx, err)
		}
		broken = broken || !v.Solved()
		render := renderVerdict
		if j.all {
			render = renderLine
		}
		io.WriteString(stdout, render(e, v, l))
	}
	if broken {
		return &cli.Exit{Status: 1}
	}
	return nil
}

func renderExercises(all []exercises.Exercise, l look) string {
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintf(&b, "%2d  %s  %s  lesson %d\n", e.Number, pad(l.paint(e.Title, text.Bold), 30), pad(path.Base(e.File), 22), e.Lesson)
	}
	return b.String() + "\n" + l.prose("", "The files are in "+path.Dir(all[0].File)+". Judge one: make exercise N=1. What changes: make exercise N=1 ARGS=--solution.")
}

func renderLine(e exercises.Exercise, v exercises.Judgement, l look) string {
	mark, title := l.paint("✓ ", text.FgGreen), fmt.Sprintf("%2d  %s", e.Number, e.Title)
	var broken []string
	for _, r := range v.Results {
		if r.Status != conformance.Kept {
			mark, broken = l.paint("✗ ", text.FgRed), append(broken, r.Property.Name)
		}
	}
	return l.prose(mark+pad(title, 36), strings.Join(broken, ", "))
}

// renderVerdict is a verdict, with what happened.
func renderVerdict(e exercises.Exercise, v exercises.Judgement, l look) string {
	var b strings.Builder
	b.WriteString("\n" + bold(fmt.Sprintf("EXERCISE %d  %s", e.Number, e.Title), l) + e.File + "\n\n")
	var kept []string
	rest := ""
	for _, r := range v.Results {
		name := r.Property.Name
		switch r.Status {
		case conformance.Kept:
			kept = append(kept, name)
		case conformance.Skipped:
			rest += l.prose("? NOT JUDGED  ", name+": "+r.Reason)
		default:
			rest += l.prose(l.paint("✗ BROKEN  ", text.FgRed, text.Bold), name+": "+r.Property.Clause)
		}
	}
	if len(kept) > 0 {
		b.WriteString(l.prose(l.paint("✓ KEPT    ", text.FgGreen), strings.Join(kept, ", ")))
	}
	b.WriteString(rest)
	if v.Broken == nil {
		if v.Solved() {
			b.WriteString("\n" + bold("Solved.", l) + l.prose("", "Now compare it with "+e.Right+", which does it right, and does more."))
		}
		return b.String()
	}
	if strings.Count(rest, "✗ BROKEN") > 1 {
		b.WriteString("\n" + l.prose("", "The first is drawn. The others may follow from it."))
	}
	b.WriteString("\n" + l.paint(strings.TrimRight(l.prose("", reports.Diagrams), "\n"), text.Faint) + "\n")
	hint, lesson := e.Advice(v)
	b.WriteString("\n" + v.Broken.Diagram(l.width, l.style) + "\n" + l.prose("Hint: ", hint))
	return b.String() + l.prose("", fmt.Sprintf("Lesson: make lessons ARGS=%d. Solution: make exercise N=%d ARGS=--solution.", lesson, e.Number))
}
