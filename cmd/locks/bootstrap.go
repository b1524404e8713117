package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/redlock"
)

func bootstrapCommand() *cobra.Command {
	c := connection{strategy: "redlock"}
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Let new servers vote in redlock at once",
		Long: `Bootstrap lets redlock's servers vote at once. Run it once, at installation, and never when an
application starts. You vouch that no server that does not vote yet has forgotten a lock that
may be held, or a fence that a store remembers. It never changes a server that votes already.`,
		Example: `  locks bootstrap --redis a:6379 --redis b:6379 --redis c:6379`,
		Annotations: parts(`   0  all servers vote
   2  the flags or arguments are wrong
  69  some may not: the error names them; run it again`,
			`An empty server cannot be told from one that lost its data. So without bootstrap no server
votes until the longest TTL has passed since it was first asked.`),
		Args:    onlyFlags,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return c.check(cmd) },
		RunE: cli.Does(func(cmd *cobra.Command) error {
			nodes := c.nodes()
			defer closeAll(nodes)
			if err := redlock.Bootstrap(cmd.Context(), nodes); err != nil {
				return unavailable(cmd.Context(), errors.New(c.addressed(err.Error())))
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d servers vote\n", len(c.servers))
			return err
		}),
	}
	c.flags(cmd)
	return cmd
}
