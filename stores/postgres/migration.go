package postgres

import (
	"context"
	"embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// The SQL of all steps. Each file opens with its arguments and every reply.
//
//go:embed sql/*.sql
var sources embed.FS

// files are those of the migration, in their order.
var files = []string{
	"schema", "timeline", "enter", "queue", "pinned", "sweep", "acquire", "release", "pass", "extend", "adopt", "inspect", "check",
}

// defaultSchema is the schema that the files name.
const defaultSchema = "locks"

// Migration returns the SQL that makes the schema, its tables and its functions, for your own migrations. It can be run again
// at any time, also while locks are held, and by a later version of this package: it drops nothing that processes of this
// version need. It is several statements: run them in one transaction (psql -1). Of the options it knows [WithSchema].
//
// The role of the locks needs these rights, if it is not the one that runs the migration:
//
//	GRANT USAGE ON SCHEMA locks TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA locks TO app;
//	GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA locks TO app;
func Migration(options ...Option) string {
	return settingsOf(options).migration()
}

// Migrate runs [Migration] in a transaction.
func Migrate(ctx context.Context, conn *pgx.Conn, options ...Option) error {
	s := settingsOf(options)
	if s.fault != nil {
		return s.fault
	}
	// Without arguments, so that it may have several statements, which are one transaction.
	if _, err := conn.PgConn().Exec(ctx, s.migration()).ReadAll(); err != nil {
		return fmt.Errorf("locks: migration of the schema %s: %w", s.schema, err)
	}
	return nil
}

func (s settings) migration() string {
	var all strings.Builder
	for _, name := range files {
		source, err := sources.ReadFile("sql/" + name + ".sql")
		if err != nil {
			panic(err) // it is embedded
		}
		all.WriteString(s.in(string(source)))
		all.WriteString("\n")
	}
	return all.String()
}

// in is SQL for the schema "locks", made for the schema of the settings.
func (s settings) in(sql string) string {
	if s.schema == defaultSchema {
		return sql
	}
	name := pgx.Identifier{s.schema}.Sanitize()
	text := func(pattern string) (old, as string) { // within quotes
		return fmt.Sprintf(pattern, defaultSchema), fmt.Sprintf(pattern, strings.ReplaceAll(name, "'", "''"))
	}
	regnamespace, asNamespace := text("to_regnamespace('%s')")
	regclass, asClass := text("'%s.")
	return strings.NewReplacer(
		"create schema "+defaultSchema+";", "create schema "+name+";",
		regnamespace, asNamespace,
		regclass, asClass,
		defaultSchema+".", name+".",
	).Replace(sql)
}
