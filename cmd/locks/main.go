// Locks is the command line tool of this module. It runs commands under a lock, shows who
// holds which, and takes a lock away.
//
//	locks exec --help
//	locks inspect --help
//	locks list --help
//	locks watch --help
//	locks release --help
//	locks check --help
//	locks bootstrap --help
//	locks script --help
//	locks migrate --help
//	locks man --help
//	locks help servers
//
// It exits with 0 when it did what was asked for, 1 when it could not, 2 when it did
// not understand, and 128 + n when signal n ended it (130 for Ctrl-C).
//
// locks exec exits as its command does: with the command's own status, or 128 + n when
// signal n has ended the command. Besides:
//
//	 69  the servers cannot be reached, refuse, or did not answer: nobody knows whether
//	     the lock was free, and the command was not started
//	 75  another holds the lock, and the wait is over; another status by -E
//	 76  the lock was lost, or the maximum hold was over, before the command ended
//	126  the command cannot be executed
//	127  the command was not found
//
// All other commands exit with 69, too, when the servers do not answer or refuse; locks watch and
// locks list --watch go on then. locks release exits with 75 when another holder has the lock than the one named by --token, or
// than the one that it has seen. In redlock a majority is enough for locks release to exit with 0: a note
// names each server that was down.
package main

import (
	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/internal/cli"
)

func main() {
	becomeCommand()
	cli.Main(rootCommand())
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:     "locks COMMAND",
		Version: cli.Version(), SilenceErrors: true, SilenceUsage: true,
		Short: "Locks on Redis, PostgreSQL or etcd: held for a command, inspected, and taken away",
		Long: `Locks holds a lock on Redis while a command runs. It shows who holds which lock, says when one
changes hands, and takes one away. It checks servers, lets new ones vote in redlock, and prints
what runs on them. There are several algorithms for a lock: --strategy names one. --store names
PostgreSQL or etcd in the place of Redis.`,
		Annotations: parts(`   0  locks did what was asked for
   1  it could not
   2  it did not understand: the flags or arguments are wrong
  69  the servers do not answer, or refuse
   …  128 + n if signal n ended it, so 130 for Ctrl-C; exec and release have more`, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetUsageTemplate(usageTemplate)
	root.SetHelpTemplate("{{.UsageString}}")
	root.SetHelpCommand(helpCommand())
	root.AddCommand(execCommand(), inspectCommand(), listCommand(), watchCommand(), releaseCommand(), checkCommand(),
		bootstrapCommand(), scriptCommand(), migrateCommand(), manCommand(), serversTopic())
	root.AddCommand(watchCommands()...)
	return root
}
