package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

// removal is what the flags and arguments of release say.
type removal struct {
	connection
	force bool
	token string
	json  bool
	name  string
}

func releaseCommand() *cobra.Command {
	var r removal
	cmd := &cobra.Command{
		Use:   "release NAME [--force]",
		Short: "Take a lock from its holder",
		Long: `Release takes the lock NAME from its holder, and says who that was. Without --force it only
says what it would do. It never ends the work of the holder, who goes on as if it held the
lock until its next renewal, or its deadline. Until then only a fence keeps it and the next
holder apart.`,
		Example: `  locks release deploy/web --redis localhost:6379           # whose is it?
  locks release deploy/web --redis localhost:6379 --force`,
		Annotations: parts(`   0  the lock was taken away, or was free already
   2  --force is missing, or the flags or arguments are wrong
  69  the servers do not answer, or refuse
  75  another holder has the lock; nothing was changed
In redlock a majority of the servers is enough for 0. A note on the standard error then names
each server that was not reached: it keeps the key until the TTL ends.`,
			`Release takes the lock only from the holder that it has seen. If another holder has the lock
by then, nothing is changed. --token (as inspect shows it) says which holder you have seen.
If several hold the lock, release takes it from the holder that --token names, or else from
the one whose time ends first.

Give --strategy the name of the holder's strategy. The key is the default one, lock:{NAME}:
release does not find the lock of a program that sets Options.Key.`),
		Args: aName,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.connection.check(cmd); err != nil {
				return err
			}
			return r.needsPermits()
		},
		RunE: cli.Does(func(cmd *cobra.Command) error {
			r.name = cmd.Flags().Arg(0)
			return r.using(cmd, options(usualTTL), func(s strategy.Strategy) error { return r.release(cmd.Context(), s, cmd.OutOrStdout()) })
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&r.force, "force", false, "do it")
	f.StringVar(&r.token, "token", "", "only from the holder that has this `token`")
	f.BoolVar(&r.json, "json", false, "print what was done as JSON")
	r.strategyFlag(cmd)
	r.connection.flags(cmd)
	return cmd
}

// A removed is what release prints.
type removed struct {
	Released bool   `json:"released"` // false: the lock was free, or its holder released it
	From     report `json:"from"`     // as it was before
}

func (r *removal) release(ctx context.Context, s strategy.Strategy, out io.Writer) error {
	seen, err := r.inspect(ctx, s, r.name)
	if err != nil {
		return err
	}
	if !seen.Held {
		return r.print(out, removed{From: r.reportOf(ctx, seen)}, "lock %s is free", plain(r.name))
	}
	several := seen.Holds > 1 && seen.Owner == seen.Token // then Inspect names the holder whose time ends first
	from := r.reportOf(ctx, seen)
	if several && r.token != "" {
		seen.Token, seen.Owner = r.token, r.token // ForceRelease finds out whether it is one of them
		seen.Label, seen.Since = token.Parse(r.token)
		from = r.reportOf(ctx, seen)
		from.TTL = nil // that of the hold that ends first
	}
	whose := holderOf(seen.Token)
	if r.token != "" && r.token != seen.Token {
		return &cli.Exit{Status: exitHeld, Err: fmt.Errorf("lock %q is held by %s, with the token %.300q, not the one that was given: nothing was changed", r.name, whose, strategy.ShortToken(seen.Token))}
	}
	if !r.force {
		return &cli.Exit{Status: 2, Err: fmt.Errorf("this would take the lock %q from %s, who goes on as if it held the lock until its next renewal or its deadline; "+
			"--force does it", r.name, whose)}
	}
	err = s.ForceRelease(ctx, seen)
	var lost *strategy.LostError
	switch {
	case err == nil:
		return r.print(out, removed{true, from}, "lock %s taken from %s", plain(r.name), whose)
	case errors.As(err, &lost) && lost.Holder != "":
		return &cli.Exit{Status: exitHeld, Err: fmt.Errorf("lock %q was released by %s meanwhile, and is held by %s now: nothing was changed", r.name, whose, holderOf(lost.Holder))}
	case errors.As(err, &lost) && lost.Err == nil && several:
		return &cli.Exit{Status: exitHeld, Err: fmt.Errorf("lock %q is not held by %s: nothing was changed", r.name, whose)}
	case errors.As(err, &lost) && lost.Err == nil:
		return r.print(out, removed{From: from}, "%s has released lock %s meanwhile", whose, plain(r.name))
	}
	return unavailable(ctx, r.explained(r.name, err))
}

func (r *removal) print(out io.Writer, what removed, words string, args ...any) error {
	if r.json {
		return printJSON(out, what, "  ")
	}
	_, err := fmt.Fprintf(out, words+"\n", args...)
	return err
}
