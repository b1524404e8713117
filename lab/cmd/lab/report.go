package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/lab/faults"
	"github.com/lockstrategies/locks/lab/lessons"
	reports "github.com/lockstrategies/locks/lab/report" // there is a report of inspect, too
)

// reporter is what the flags of report say.
type reporter struct {
	servers
	output string
	quick  bool

	lessons  []lessons.Lesson
	variants []subjects.Variant // to compare
	each     time.Duration
}

func reportCommand() *cobra.Command {
	p := reporter{lessons: lessons.All(), variants: subjects.Compared(), each: usualDuration}
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Write all of this down as one page, from a run on your Redis",
		Long: `Report plays all lessons, holds the comparison, in about three minutes, and writes what
came of them as one HTML file: each lesson's diagram, what each lock guarantees, what
becomes of it when things break, and how fast it is. The file needs nothing else, no
network and no scripts; it can be read on a phone and be printed.

The Redis is the most real one available, as for lab compare; the first line says
which. Lessons that break their servers take some of their own, so on a Redis of your
own (--redis) the page says which were not given, and why. The matrix of faults is that of
lab faults: it takes hundreds of plays, and is not played for the page.

Where there is a play.html in its folder (see lab play), the lessons lead to its scenes.

The file is written at the end. After Ctrl-C there is none, or the one that
was there before. Where a lesson or the comparison fails, the page has the rest, and says
what it lacks and why; the exit status is 1.`,
		Example: `  lab report                          # locks-report.html
  lab report --quick -o report.html   # with less exact timings, in about a minute and a half
  lab report -o - > report.html       # what it says meanwhile goes to the standard error`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return p.check() },
		RunE:    cli.Does(p.run),
	}
	f := cmd.Flags()
	f.SortFlags = false
	p.servers.flags(cmd)
	f.StringVarP(&p.output, "output", "o", "locks-report.html", "write this `file`, in place of what is there; - is the standard output")
	f.BoolVar(&p.quick, "quick", false, "measure for "+quickDuration.String()+" each, and not for "+usualDuration.String())
	cmd.MarkFlagFilename("output", "html")
	return cmd
}

func (p *reporter) check() error {
	if err := p.servers.check(); err != nil {
		return err
	}
	if p.output == "" {
		return errors.New("--output names no file: give one, or - for the standard output")
	}
	if p.quick {
		p.each = quickDuration
	}
	return nil
}

func (p *reporter) run(cmd *cobra.Command) (err error) {
	ctx, words, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if p.output == "-" {
		words = stderr
	} else if info, err := os.Stat(filepath.Dir(p.output)); err != nil || !info.IsDir() { // told now, and not after minutes of work
		return fmt.Errorf("%s cannot be written: its folder is not there", p.output)
	} else if info, err := os.Stat(p.output); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder: -o names a file", p.output)
	}
	farm, err := p.open(ctx, words, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, farm.Close()) }()

	r := reports.Report{Version: cli.Version(), Command: p.command(), Made: time.Now(), Imitation: farm.Kind() == redistest.Embedded, Faults: faults.Groups()}
	const played = "play.html" // as make play calls it
	if _, err := os.Stat(filepath.Join(filepath.Dir(p.output), played)); err == nil && p.output != "-" {
		r.Play = played
	}
	var failed error
	if r.Lessons, failed, err = p.give(ctx, farm, stderr); err != nil {
		return err
	}
	r.Comparison, err = p.compare(ctx, farm, stderr)
	switch {
	case ctx.Err() != nil:
		return p.gaveUp(ctx, err)
	case err != nil: // half a comparison would pass for one, but the lessons are whole
		r.Comparison, r.Uncompared = nil, p.asAsked(err.Error())
		failed = errors.Join(failed, fmt.Errorf("the strategies were not compared: %s", r.Uncompared))
	}
	r.Choice = p.asAsked(farm.Choice()) // the slow work may have shown that it must be another
	r.Took = time.Since(r.Made)
	var page bytes.Buffer
	if err := reports.Write(&page, r); err != nil {
		return err
	}
	if p.output == "-" {
		_, err = cmd.OutOrStdout().Write(page.Bytes())
	} else if err = os.WriteFile(p.output, page.Bytes(), 0o644); err == nil {
		fmt.Fprintf(words, "%s is written: open it in a browser.\n", p.output)
	}
	if r.Comparison == nil {
		return errors.Join(err, failed)
	}
	if all := surprises(r.Comparison); len(all) > 0 {
		failed = errors.Join(failed, fmt.Errorf("%d of the trials and measurements ended as they should not: %s", len(all), strings.Join(all, "; ")))
	}
	return errors.Join(err, failed)
}

// command is what was asked for, without what may be secret or somebody's own.
func (p *reporter) command() string {
	words := []string{"lab report"}
	for flag, set := range map[string]bool{"--docker": p.docker, "--embedded": p.embedded, "--redis …": len(p.redis) > 0} {
		if set {
			words = append(words, flag) // they exclude each other
		}
	}
	if p.quick {
		words = append(words, "--quick")
	}
	return strings.Join(words, " ")
}

// give gives the lessons. A lesson that these servers cannot play is no failure. One
// that stopped before its end is; give goes on with the others.
func (p *reporter) give(ctx context.Context, farm *redistest.Farm, stderr io.Writer) (played []reports.Lesson, failed, err error) {
	school := lessons.Open(farm)
	defer func() { err = errors.Join(err, school.Close()) }()
	told := startProgress(stderr)
	defer told.end()
	for i, l := range p.lessons {
		told.set(float64(i)/float64(len(p.lessons)), fmt.Sprintf("lesson %d: %s", l.Number, l.Title))
		result, e := school.Perform(ctx, l)
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		lesson := reports.Lesson{Result: result}
		if e != nil {
			lesson.Why = p.asAsked(e.Error())
			if !errors.Is(e, redistest.ErrImpossible) {
				failed = errors.Join(failed, errors.New(lesson.Why))
			}
		}
		played = append(played, lesson)
	}
	return played, failed, nil
}

// compare holds the strategies against each other, as lab compare does.
func (p *reporter) compare(ctx context.Context, farm *redistest.Farm, stderr io.Writer) (*compare.Report, error) {
	nodes, err := farm.AtMost(ctx, subjects.Most(p.variants))
	if err != nil {
		return nil, err
	}
	c := comparison{servers: p.servers, duration: p.each, variants: p.variants}
	return c.measure(ctx, farm, nodes, stderr)
}
