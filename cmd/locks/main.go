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
		Use:     "locks",
		Version: cli.Version(), SilenceErrors: true, SilenceUsage: true,
		Short: "Redis locks: held for a command, inspected, and taken away",
		Long: "Redis locks: several algorithms behind one interface.\n\n" +
			"locks exec holds a lock while a command runs; locks inspect shows who holds one,\nlocks list shows all that are held, locks watch says when one changes hands, and\nlocks release takes it away. locks check says whether servers can be relied on.\nlocks bootstrap lets new servers vote in redlock. locks script prints what runs on them.",
		Args: aCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(explainFlag)
	root.AddCommand(execCommand(), inspectCommand(), listCommand(), watchCommand(), releaseCommand(), checkCommand(), bootstrapCommand(), scriptCommand(), manCommand())
	root.AddCommand(watchCommands()...)
	return root
}
