// Lab compares the lock strategies on a Redis, puts them to work in a flash sale, and shows
// what each does when things break. It gives lessons on how lock designs evolved, and writes
// all that down as one page.
//
//	lab compare --help
//	lab flashsale --help
//	lab faults --help
//	lab lesson --help
//	lab exercise --help
//	lab play --help
//	lab report --help
//
// From the root of the repository it is run by
//
//	go run -C lab ./cmd/lab compare
//
// It exits with 0 when it did what was asked for, 1 when it could not, 2 when it did
// not understand, and 128 + n when signal n ended it (130 for Ctrl-C). If the servers cannot
// be reached or used, it exits with 69.
package main

import (
	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/compare/stores"
	"github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/faults"
)

func main() {
	if contender.Child(faults.Players()...) || subjects.Child(stores.Children()...) {
		return // it was a process that a play of faults stops, or one of a trial
	}
	cli.Main(rootCommand())
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:     "lab",
		Version: cli.Version(), SilenceErrors: true, SilenceUsage: true,
		Short: "The laboratory of Redis locks: compared, put to work, and broken",
		Long: "The laboratory of Redis locks: several algorithms behind one interface.\n\n" +
			"lab compare shows what each guarantees, and what it does not, what it costs,\nand how fast it is, on a Redis that it finds or starts. lab flashsale puts\neach to work: 10 goods, 30 buyers, 2 copies of the program. lab faults shows what each\ndoes when things break. lab lesson shows how lock designs evolved,\nlab exercise judges locks that you put right. lab play writes a page on which you\nbreak locks by hand, and lab report writes all that down as one page.\n\nHere lab stands for: go run -C lab ./cmd/lab, from the root of the repository.",
	}
	root.AddCommand(compareCommand(), flashsaleCommand(), faultsCommand(), lessonCommand(), exerciseCommand(), playCommand(), reportCommand())
	return root
}
