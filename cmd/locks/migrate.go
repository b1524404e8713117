package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/stores/postgres"
)

func migrateCommand() *cobra.Command {
	var c connection
	var printed bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Make the schema for locks in PostgreSQL",
		Long: `Migrate makes the schema "locks" in PostgreSQL, with its tables and functions, or brings it to
this version, in one transaction. It never drops what programs of an earlier version need. No
other command changes the schema.`,
		Example: `  locks migrate --store postgres://owner@localhost/app
  locks migrate --print | psql --single-transaction postgres://owner@localhost/app`,
		Annotations: parts(`   0  the schema is there
   2  the flags or arguments are wrong
  69  PostgreSQL cannot be reached, or refuses; nothing was changed`,
			`It can be run again at any time, also while locks are held. Run it before the programs of a
new version. If the programs have another role than the one that migrates, it needs these
rights:
  GRANT USAGE ON SCHEMA locks TO app;
  GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA locks TO app;
  GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA locks TO app;`),
		Args: onlyFlags,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if printed {
				return nil
			}
			if c.storeGiven(cmd) == "" {
				return errors.New("which PostgreSQL? Give --store or set " + storeVar + ": postgres://[user@]host[:port]/database")
			}
			if err := c.check(cmd); err != nil {
				return err
			}
			if c.postgres == nil {
				return errors.New("migrate is for PostgreSQL: etcd needs no schema")
			}
			return nil
		},
		RunE: cli.Does(func(cmd *cobra.Command) error {
			if printed {
				_, err := io.WriteString(cmd.OutOrStdout(), postgres.Migration())
				return err
			}
			conn, err := pgx.ConnectConfig(cmd.Context(), c.postgres.ConnConfig)
			if err == nil {
				defer conn.Close(cmd.Context()) //nolint:errcheck // the migration has ended
				err = postgres.Migrate(cmd.Context(), conn)
			}
			if err != nil {
				return unavailable(cmd.Context(), errors.New(c.withoutPasswords(err.Error())))
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "the schema locks is there")
			return err
		}),
	}
	cmd.Flags().BoolVar(&printed, "print", false, "print the SQL, and ask no server")
	c.storeFlag(cmd)
	return cmd
}
