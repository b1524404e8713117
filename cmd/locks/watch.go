package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/strategy"
)

// watching is what the flags and arguments of watch say.
type watching struct {
	connection
	json  bool
	every time.Duration
}

func watchCommand() *cobra.Command {
	var w watching
	cmd := &cobra.Command{
		Use:   "watch NAME",
		Short: "Say each time that a lock changes hands",
		Long: `Watch prints who holds the lock NAME, and a line each time that this changes: when, who holds
it now, the fence, and who held it before. It goes on until a signal ends it. It never changes
anything.`,
		Example: `  locks watch deploy/web --redis localhost:6379
  locks watch nightly --json --every 100ms >> nightly.log`,
		Annotations: parts(`   2  the flags or arguments are wrong
 130  after Ctrl-C; 128 + n after signal n`,
			`Give --strategy the name of the holder's strategy. The key is the default one, lock:{NAME}.

Watch looks every so often, so it does not see a hold that is shorter than --every. While
several hold the lock, it names one of them, and prints a line when their number or the fence
changes. If the servers do not answer, it says so once on the standard error, and again when
they answer.`),
		Args: aName,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkEvery(w.every); err != nil {
				return err
			}
			return w.check(cmd)
		},
		RunE: cli.Does(w.run),
	}
	f := cmd.Flags()
	f.BoolVar(&w.json, "json", false, "print each change as one line of JSON")
	everyFlag(f, &w.every)
	w.strictFlag(cmd)
	w.strategyFlag(cmd)
	w.connection.flags(cmd)
	return cmd
}

// leastEvery keeps a slip of the finger from putting the servers under load.
const leastEvery = 10 * time.Millisecond

func everyFlag(f *pflag.FlagSet, p *time.Duration) {
	durationVar(f, p, "every", "", time.Second, "the `time` from one look to the next")
}

func checkEvery(every time.Duration) error {
	if every < leastEvery {
		return fmt.Errorf("--every is %v: allowed are %v and more", every, leastEvery)
	}
	return nil
}

func (w *watching) run(cmd *cobra.Command) error {
	if err := w.examineFor(cmd); err != nil {
		return err
	}
	name := cmd.Flags().Arg(0)
	return w.using(cmd, options(usualTTL), func(s strategy.Strategy) error {
		var before strategy.Info
		failing := false
		for info, err := range strategy.Watch(cmd.Context(), s, name, w.every) {
			if err != nil {
				failing = true
				note(cmd, "%v", w.explained(name, err))
				continue
			}
			if failing {
				failing = false
				note(cmd, "the servers answer again")
			}
			if err := w.print(cmd.Context(), cmd.OutOrStdout(), time.Now().UTC(), info, before); err != nil {
				return err
			}
			before = info
		}
		return context.Cause(cmd.Context())
	})
}

// A sighting is what watch has seen. Its JSON is for programs: fields are added, not changed.
type sighting struct {
	Time time.Time `json:"time"`
	report
	Before *waiter `json:"before,omitempty"` // the holder that was seen last, if it is another
}

func (w *watching) print(ctx context.Context, out io.Writer, now time.Time, info, before strategy.Info) error {
	seen := sighting{Time: now, report: w.reportOf(ctx, info)}
	if before.Held && before.Token != info.Token && info.Holds < 2 { // of several holders it may be another, still
		seen.Before = &waiter{before.Token, processOf(before.Label)}
	}
	if w.json {
		return printJSON(out, seen, "")
	}
	words := "free"
	if info.Held {
		words = "held by " + holderOf(info.Token)
		if info.Holds > 1 {
			words += fmt.Sprintf(", %d holds", info.Holds)
		}
		if info.Fence > 0 {
			words += fmt.Sprintf(", fence %d", info.Fence)
		}
	}
	if seen.Before != nil {
		words += "; before: " + holderOf(before.Token)
	}
	_, err := fmt.Fprintf(out, "%s  %s\n", now.Format("2006-01-02T15:04:05.000Z07:00"), words)
	return err
}
