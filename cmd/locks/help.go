package main

import "github.com/spf13/cobra"

// The help of a command has these parts in this order: the usage line, the Long text, which is a short paragraph, the
// examples, the flags, the exit status, and all that there is to say besides. cobra knows no field for the last two.
const (
	exitPart = "exit"
	morePart = "more"
)

func parts(exit, more string) map[string]string {
	return map[string]string{exitPart: exit, morePart: more}
}

const (
	helpName   = "help"
	helpWidth  = "95" // columns
	serversUse = "servers"

	// serversLine stands in the help of each command that asks servers, in the place of the topic.
	serversLine = "How to write addresses, and where user, password and TLS files come from: locks help " + serversUse
)

const usageTemplate = `{{if or .Runnable .HasSubCommands}}Usage: {{.UseLine}}

{{end}}{{.Long}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "` + helpName + `")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasHelpSubCommands}}

Topics, for '{{.CommandPath}} ` + helpName + ` TOPIC':{{range .Commands}}{{if .IsAdditionalHelpTopicCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .Runnable}}

Flags:
{{.LocalFlags.FlagUsagesWrapped ` + helpWidth + ` | trimTrailingWhitespaces}}{{if or (.LocalFlags.Lookup "redis") (.LocalFlags.Lookup "store")}}

` + serversLine + `{{end}}{{end}}{{with .Annotations.` + exitPart + `}}

Exit status:
{{.}}{{end}}{{with .Annotations.` + morePart + `}}

More:

{{.}}{{end}}{{if .HasAvailableSubCommands}}

'{{.CommandPath}} COMMAND --help' says what a command does, and has its flags.{{end}}
`

const serversHelp = `All commands that ask servers take addresses, passwords and TLS files from the same places.

The servers: --redis, once for each, or else REDIS_URL, which may have several addresses
separated by spaces or commas. There is no default, because a lock on the wrong Redis keeps
nobody out. An address is one of these:
  host:port                    without a port it is 6379
  redis://host:port/database   the database is its number; --db counts more
  rediss://host:port/database  the same with TLS, as with --tls
  unix:///path                 a Unix socket; so is a path with a slash

User and password: --user and --password-file, or those in REDIS_URL, or REDIS_USER and
REDIS_PASSWORD, in this order. In an address they are written redis://user:password@host.
A password in an argument is refused: everybody on this machine can read arguments in the
list of processes. A user alone may be in --redis.

TLS files: --tls-ca, --tls-cert and --tls-key, and for the name --tls-server-name; or else
REDIS_TLS_CA, REDIS_TLS_CERT, REDIS_TLS_KEY and REDIS_TLS_SERVER_NAME.

PostgreSQL or etcd in the place of Redis: --store, or else LOCKS_STORE, which counts more than
REDIS_URL. Each has one kind of lock, so there is no --strategy. An address is one of these:
  postgres://host:port/database  all that psql takes, such as ?sslmode=verify-full
  etcd://host:port,host:port     all members, separated by commas
  etcds://host:port,host:port    the same with TLS, as with --tls
User and password are in LOCKS_STORE, or --user and --password-file give them; the variables
that begin with REDIS_ do not count. For PostgreSQL they may also be where psql finds them, in
PGPASSWORD or ~/.pgpass, and its address has what TLS needs. PostgreSQL needs a schema, which
'locks migrate' makes. It is called locks: the tool does not find those of another name.`

// serversTopic is a text of its own: cobra takes a command that does nothing for a topic of the help.
func serversTopic() *cobra.Command {
	return &cobra.Command{
		Use:   serversUse,
		Short: "How to name the servers, the user, the password and the TLS files",
		Long:  serversHelp,
	}
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   helpName + " [COMMAND | TOPIC]",
		Short: "Print the help of a command, or a topic",
		Long: `Help prints the help of a command, as the command does with --help, or a topic. Without an
argument it lists both. It never asks a server.`,
		Example: `  locks help exec
  locks help servers`,
		Annotations: parts(`   0  the help was printed
   2  there is no such command, and no such topic`, ""),
		Args: atMostOne("command"),
		RunE: func(cmd *cobra.Command, args []string) error {
			about, _, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			about.InitDefaultHelpFlag() // as about --help does
			about.InitDefaultVersionFlag()
			return about.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			for _, c := range cmd.Root().Commands() {
				if len(args) == 0 && (c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand()) {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
