package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/strategy"
)

func checkCommand() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say whether the servers can be relied on to keep locks",
		Long: `Check says whether locks can rely on the servers: they answer, are primaries, do not evict
keys, know the commands, and allow this user what the strategy needs. It changes nothing.

Exit status: 0 if nothing is wrong, 69 if something is, or if the servers do not answer, 2 if
the flags or arguments are wrong.

` + connectionHelp,
		Example: `  locks check --redis localhost:6379
  locks check --strategy redlock --redis a:6379 --redis b:6379 --redis c:6379`,
		Args:    cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return c.check(cmd) },
		RunE: cli.Does(func(cmd *cobra.Command) error {
			return c.using(cmd, func(s strategy.Strategy) error {
				if err := s.Check(cmd.Context()); err != nil {
					return unavailable(cmd.Context(), c.explained("check", err))
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "ready for %s locks\n", c.strategy)
				return err
			})
		}),
	}
	cmd.Flags().SortFlags = false
	c.strategyFlag(cmd)
	c.flags(cmd)
	return cmd
}

// strictFlag is for commands that look at the servers first.
func (c *connection) strictFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.strict, "strict", false, "refuse a server that may not keep locks: a replica, or one that evicts\nkeys (default: a warning)")
}

// examineFor is examine for commands that only look.
func (c *connection) examineFor(cmd *cobra.Command) error {
	return c.examine(cmd.Context(), options(usualTTL).OpTimeout, func(format string, args ...any) { note(cmd, format, args...) })
}

// note writes a line for people.
func note(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintf(cmd.ErrOrStderr(), "locks: "+format+"\n", args...)
}

// examine warns of servers that may not keep locks, or refuses them. It asks all at the same time, for at most this
// time. Servers that do not answer it leaves to the request that comes next.
func (c *connection) examine(ctx context.Context, limit time.Duration, warn func(format string, args ...any)) error {
	due := time.Now().Add(limit)
	pools := c.pools()
	faults := make([]error, len(pools))
	var all sync.WaitGroup
	for i, pool := range pools {
		all.Go(func() {
			n, err := node.New(pool)
			if err != nil {
				faults[i] = err
				return
			}
			defer n.Close()
			var server *strategy.ServerError
			if err := driver.CheckNode(ctx, due, n); !errors.As(err, &server) {
				faults[i] = err
			}
		})
	}
	all.Wait()
	err := errors.Join(faults...)
	if err != nil && c.strict {
		return &cli.Exit{Status: exitUnavailable, Err: err}
	}
	for _, fault := range faults {
		if fault != nil {
			warn("warning: %v", fault)
		}
	}
	return nil
}
