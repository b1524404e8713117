package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/rwlock"
	"github.com/lockstrategies/locks/semaphore"
)

// A sent script is one that a strategy sends.
type sent struct {
	*driver.Script
	by string
}

func (s sent) name() string { return s.by + "/" + s.Name() }

func scripts() (all []sent) {
	add := func(by string, p driver.Protocol) {
		for _, s := range rediskit.Scripts(p) {
			all = append(all, sent{s, by})
		}
	}
	add("luascript", luascript.On(nil))
	add("fairqueue", fairqueue.On(nil))
	add("reentrant", reentrant.On(nil))
	add("semaphore", semaphore.On(nil, 1))
	add("rwlock", rwlock.On(nil))
	add("redlock", redlock.On(nil))
	return all
}

func scriptCommand() *cobra.Command {
	var number bool
	var found sent
	cmd := &cobra.Command{
		Use:   "script [NAME | SHA-1]",
		Short: "Print a script that the strategies send",
		Long: `Script prints the Lua that a strategy sends, byte for byte. NAME or SHA-1 says which; without
an argument it lists all scripts. It never asks a server.`,
		Example: `  locks script
  locks script fairqueue/acquire
  locks script -n fairqueue/acquire | grep '^ *137 '`,
		Annotations: parts(`   0  the script was printed, or the list
   2  there is no such script, or the flags or arguments are wrong`,
			`A server names a script by its SHA-1: in SLOWLOG (after EVALSHA), and in an error (script: its
SHA-1, on @user_script:137). Give that SHA-1, or its first 8 digits or more, and -n: then
each line begins with its number, and with the file of this library that it is from, and the
line there.

Another version of this library may have other scripts: take the tool of the version that
sent the script.`),
		Args: atMostOne("script"),
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			if len(args) > 0 {
				found, err = findScript(args[0])
			}
			return err
		},
		RunE: cli.Does(func(cmd *cobra.Command) error {
			switch {
			case found.Script == nil:
				return listScripts(cmd.OutOrStdout())
			case number:
				return numberLines(cmd.OutOrStdout(), found.Source())
			}
			_, err := io.WriteString(cmd.OutOrStdout(), found.Source())
			return err
		}),
	}
	cmd.Flags().BoolVarP(&number, "number", "n", false, "number the lines, and name the file and the line that each is from")
	return cmd
}

// findScript finds a script by its name, or by the beginning of its SHA-1.
func findScript(what string) (sent, error) {
	for _, s := range scripts() {
		if s.name() == what || len(what) >= 8 && strings.HasPrefix(s.Hash(), strings.ToLower(what)) {
			return s, nil
		}
	}
	return sent{}, fmt.Errorf("there is no script %s in this version: 'locks script' lists all. Of a SHA-1 it needs 8 digits", what)
}

func listScripts(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tLINES\tSHA-1")
	for _, s := range scripts() {
		fmt.Fprintf(t, "%s\t%d\t%s\n", s.name(), strings.Count(s.Source(), "\n"), s.Hash())
	}
	return t.Flush()
}

// heading is the first line of each file that scripts are made of: a comment that begins with the file's name.
var heading = regexp.MustCompile(`^-- (\w+): `)

func numberLines(w io.Writer, source string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	file, line, comment := "", 0, false
	for i, text := range strings.Split(strings.TrimSuffix(source, "\n"), "\n") {
		if h := heading.FindStringSubmatch(text); h != nil && !comment { // within a comment it is no heading
			file, line = h[1]+".lua", 0
		}
		line++
		comment = strings.HasPrefix(text, "--")
		fmt.Fprintf(t, "%4d\t%s:%d\t%s\n", i+1, file, line, text)
	}
	return t.Flush()
}
