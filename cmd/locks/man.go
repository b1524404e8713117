package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/internal/cli"
)

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIRECTORY",
		Short: "Write the manual pages into a directory",
		Long: `Man writes the manual pages of all commands into DIRECTORY, one file for each. It makes the
directory, and those above it, if they are missing. It replaces pages that are there, and
never touches another file.`,
		Example: `  locks man share/man/man1        # in a package
  man share/man/man1/locks-exec.1`,
		Annotations: parts(`   0  all pages were written
   1  a page could not be written
   2  the flags or arguments are wrong`, "The same version of locks writes the same pages each time: they have no date."),
		Args: exactlyOne("the directory"),
		RunE: cli.Does(func(cmd *cobra.Command) error { return writeManual(cmd.Root(), cmd.Flags().Arg(0)) }),
	}
}

// writeManual writes a page for the program, and one for each of its commands. The same program writes the same
// pages each time: they have its version, and no date.
func writeManual(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, cmd := range append(root.Commands(), root) {
		if cmd != root && !hasPage(cmd) {
			continue
		}
		var b bytes.Buffer
		if err := writePage(&b, cmd); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, pageOf(cmd)+".1"), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// hasPage reports whether a command is one of this tool, and not cobra's.
func hasPage(cmd *cobra.Command) bool {
	return cmd.IsAvailableCommand() && cmd.Name() != helpName && cmd.Name() != "completion"
}

// asksServers reports whether a command needs an address.
func asksServers(cmd *cobra.Command) bool {
	return cmd.Flags().Lookup("redis") != nil || cmd.Flags().Lookup("store") != nil
}

// pageOf is the name of a command's page, as of git's.
func pageOf(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// writePage writes the help as it stands, between what whatis and man need.
func writePage(w io.Writer, cmd *cobra.Command) error {
	root := cmd.Root()
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	var help bytes.Buffer
	cmd.SetOut(&help)
	if err := cmd.Help(); err != nil {
		return err
	}
	if cmd == root || asksServers(cmd) {
		help.WriteString("\n" + serversHelp + "\n")
	}
	var others []string
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		if c != cmd && (c == root || hasPage(c)) {
			others = append(others, fmt.Sprintf("\\fB%s\\fR(1)", escape(pageOf(c))))
		}
	}
	_, err := fmt.Fprintf(w, ".TH %s 1 \"\" \"%s %s\"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n%s.fi\n.SH SEE ALSO\n%s\n",
		strings.ToUpper(pageOf(cmd)), root.Name(), escape(cli.Version()), escape(pageOf(cmd)), escape(cmd.Short), escape(help.String()), strings.Join(others, ", "))
	return err
}

// escape keeps roff from taking text for its own requests.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
