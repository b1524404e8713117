package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
		writePage(&b, cmd)
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

// pageOf is the name of a command's page, as of git's.
func pageOf(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func writePage(w io.Writer, cmd *cobra.Command) {
	root := cmd.Root()
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	fmt.Fprintf(w, ".TH %s 1 \"\" \"%s %s\"\n", strings.ToUpper(pageOf(cmd)), root.Name(), escape(cli.Version()))
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", escape(pageOf(cmd)), escape(cmd.Short))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n", escape(cmd.UseLine()))
	fmt.Fprint(w, ".SH DESCRIPTION\n")
	writeProse(w, cmd.Long)
	if more := cmd.Annotations[morePart]; more != "" {
		writeProse(w, "\n"+more)
	}
	if cmd.Example != "" {
		fmt.Fprintf(w, ".SH EXAMPLES\n.nf\n%s\n.fi\n", escape(cmd.Example))
	}
	if cmd == root {
		fmt.Fprint(w, ".SH COMMANDS\n")
		for _, c := range root.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(w, ".TP\n.B %s\n%s\n", escape(c.CommandPath()), escape(c.Short))
			}
		}
	}
	fmt.Fprint(w, ".SH OPTIONS\n")
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { writeFlag(w, f) })
	writeSection(w, "EXIT STATUS", cmd.Annotations[exitPart])
	if asksServers := cmd.LocalFlags().Lookup("redis") != nil; cmd == root || asksServers {
		writeSection(w, "SERVERS", serversHelp)
	}
	fmt.Fprint(w, ".SH SEE ALSO\n")
	var others []string
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		if c != cmd && (c == root || hasPage(c)) {
			others = append(others, fmt.Sprintf("\\fB%s\\fR(1)", escape(pageOf(c))))
		}
	}
	fmt.Fprintln(w, strings.Join(others, ", "))
}

func writeSection(w io.Writer, heading, text string) {
	if text != "" {
		fmt.Fprintf(w, ".SH %s\n", heading)
		writeProse(w, text)
	}
}

func writeFlag(w io.Writer, f *pflag.Flag) {
	what, usage := pflag.UnquoteUsage(f)
	names := "\\fB" + escape("--"+f.Name) + "\\fR"
	if f.Shorthand != "" {
		names = "\\fB" + escape("-"+f.Shorthand) + "\\fR, " + names
	}
	if what != "" {
		names += " \\fI" + escape(what) + "\\fR"
	}
	if !slices.Contains([]string{"", "false", "0", "[]"}, f.DefValue) {
		usage += " (default " + f.DefValue + ")"
	}
	fmt.Fprintf(w, ".TP\n%s\n%s\n", names, escape(usage))
}

// entry is a line of a table in a help text: a term, and what it means.
var entry = regexp.MustCompile(`^ {1,3}(\S+) {2,}(\S.*)$`)

// writeProse writes paragraphs and tables.
func writeProse(w io.Writer, text string) {
	table := false
	for line := range strings.SplitSeq(text, "\n") {
		if e := entry.FindStringSubmatch(line); e != nil {
			fmt.Fprintf(w, ".TP\n.B %s\n%s\n", escape(e[1]), escape(e[2]))
			table = true
			continue
		}
		if line == "" || table && !strings.HasPrefix(line, " ") {
			fmt.Fprintln(w, ".PP")
			table = false
		}
		if line != "" {
			fmt.Fprintln(w, escape(strings.TrimSpace(line)))
		}
	}
}

// escape keeps roff from taking text for its own requests.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
