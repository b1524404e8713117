package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/redlock"
)

func primeCommand() *cobra.Command {
	c := connection{strategy: "redlock"}
	cmd := &cobra.Command{
		Use:   "prime",
		Short: "Let new servers vote in redlock at once",
		Long: `Prime tells redlock's servers that they are new. Without it they do not vote until the
longest TTL has passed since they were first asked, because a server that is new looks like
one that has just forgotten its locks.

Whoever calls it vouches that none of the servers that do not vote yet has forgotten a lock
that may be held, or a fence that a store remembers. So it is for whoever sets them up, once, and not
for what runs whenever a program or a server starts. On a server that votes already it
changes nothing.

Exit status: 0 if all are primed, 69 if some may not be, which the error names: it may be
called again; 2 if it was not understood.

` + connectionHelp,
		Example: `  locks prime --redis a:6379 --redis b:6379 --redis c:6379`,
		Args:    cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return c.check(cmd) },
		RunE: cli.Does(func(cmd *cobra.Command) error {
			if err := redlock.Prime(cmd.Context(), c.pools()); err != nil {
				return unavailable(cmd.Context(), err)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d servers vote\n", len(c.servers))
			return err
		}),
	}
	c.flags(cmd)
	return cmd
}
