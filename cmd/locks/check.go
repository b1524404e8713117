package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

func checkCommand() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say whether the servers can be relied on to keep locks",
		Long: `Check says whether locks can rely on the servers: whether they answer, are primaries, do not
evict keys, are not full, know the commands, and allow this user what the strategy needs. It
names what this user may not see. It never changes anything.`,
		Example: `  locks check --redis localhost:6379
  locks check --strategy redlock --redis a:6379 --redis b:6379 --redis c:6379`,
		Annotations: parts(`   0  nothing that this user may see is wrong
   2  the flags or arguments are wrong
  69  something is wrong, or the servers do not answer`,
			`With redlock, check says which servers do not vote, and for how long: by --max-ttl, or by the
longest TTL that a server knows of.`),
		Args: onlyFlags,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.check(cmd); err != nil {
				return err
			}
			return c.checkMaxTTL(cmd, contract.MinTTL)
		},
		RunE: cli.Does(func(cmd *cobra.Command) error {
			o, err := c.checkOptions(cmd)
			if err != nil {
				return err
			}
			return c.using(cmd, o, func(s strategy.Strategy) error {
				if err := s.Check(cmd.Context()); err != nil {
					return unavailable(cmd.Context(), c.explained("check", err))
				}
				said := fmt.Sprintf("ready for %s locks", c.strategy)
				if unseen := errors.Join(c.look(cmd.Context(), o.OpTimeout, rediskit.CheckNodeStrictly)...); unseen != nil {
					said += "; not checked: " + cli.Printable(c.addressed(unseen.Error()))
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), said)
				return err
			})
		}),
	}
	c.strategyFlag(cmd)
	c.maxTTLFlag(cmd, "the longest that a server knows of")
	c.flags(cmd)
	return cmd
}

// checkOptions are those of the programs that use the servers, as far as they matter: with redlock their TTL does.
func (c *connection) checkOptions(cmd *cobra.Command) (strategy.Options, error) {
	o := options(usualTTL)
	if c.algorithm.servers == 1 {
		return o, nil
	}
	nodes := c.nodes()
	defer closeAll(nodes)
	longest := redlock.LongestTTL(cmd.Context(), due(), nodes)
	if c.maxTTL > 0 && longest > c.maxTTL {
		note(cmd, "note: a server knows of a TTL of %v, which is longer than --max-ttl: give all programs the longest as their MaxTTL", longest)
	}
	if ttl := cmp.Or(c.maxTTL, longest); ttl > 0 && ttl < o.TTL {
		o.TTL, o.OpTimeout = ttl, min(ttl*9/10, connectTimeout)
	}
	return o, nil
}

// strictFlag is for commands that look at the servers first.
func (c *connection) strictFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.strict, "strict", false, "refuse a server that may not keep locks: a replica, or one that evicts keys, is full, or does not say so (without +info); the default is a warning")
}

// examineFor is examine for commands that only look.
func (c *connection) examineFor(cmd *cobra.Command) error {
	return c.examine(cmd.Context(), options(usualTTL).OpTimeout, func(format string, args ...any) { note(cmd, format, args...) })
}

// note writes a line for people.
func note(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintf(cmd.ErrOrStderr(), "locks: %s\n", cli.Printable(fmt.Sprintf(format, args...)))
}

// examine warns of servers that may not keep locks, or refuses them, within this time.
func (c *connection) examine(ctx context.Context, limit time.Duration, warn func(format string, args ...any)) error {
	check := rediskit.CheckNode
	if c.strict {
		check = rediskit.CheckNodeStrictly
	}
	faults := c.look(ctx, limit, check)
	if err := errors.Join(faults...); err != nil && c.strict {
		return &cli.Exit{Status: exitUnavailable, Err: errors.New(c.addressed(err.Error()))}
	}
	for _, fault := range faults {
		if fault != nil {
			warn("warning: %s", c.addressed(fault.Error()))
		}
	}
	return nil
}

// look asks all servers at the same time, for at most this time, what is wrong with each. Servers that do not answer it
// leaves to the request that comes next.
func (c *connection) look(ctx context.Context, limit time.Duration, check func(context.Context, time.Time, driver.Node) error) []error {
	due := time.Now().Add(limit)
	nodes := c.nodes()
	faults := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() {
			defer n.Close()
			var server *strategy.ServerError
			if err := check(ctx, due, n); !errors.As(err, &server) || server.Kind == strategy.ErrRefused {
				faults[i] = err
			}
		})
	}
	all.Wait()
	return faults
}
