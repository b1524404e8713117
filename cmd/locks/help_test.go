// Tests the shape of the help: that each command says first how it is written and what it does, and what its flags are
// by default.
package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/lockstrategies/locks/internal/cli"
)

// helpOf is what a command prints with --help.
func helpOf(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := cli.Execute(t.Context(), rootCommand(), append(args, "--help"), nil, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Fatalf("%q: exit %d, it said %q", args, code, errs.String())
	}
	return out.String()
}

// inOrder holds a text to have these words, each at the beginning of a line, in this order.
func inOrder(t *testing.T, what, text string, words ...string) {
	t.Helper()
	rest := "\n" + text
	for _, w := range words {
		_, after, found := strings.Cut(rest, "\n"+w)
		if !found {
			t.Errorf("%s: want %q in this order, and there is no %q behind those before it, in\n%s", what, words, w, text)
			return
		}
		rest = "\n" + after
	}
}

// TestHelpShape: first the usage line, then a short paragraph, then the parts, all as wide as a terminal at most.
func TestHelpShape(t *testing.T) {
	for _, cmd := range commands() {
		help := helpOf(t, strings.Fields(path(cmd))...)
		first, rest, _ := strings.Cut(help, "\n\n")
		if strings.Contains(first, "\n") || !strings.HasPrefix(first, "Usage: locks") || !strings.Contains(first, cmd.Use) {
			t.Errorf("%s: the help begins with %q, want the usage line", path(cmd), first)
		}
		paragraph, _, _ := strings.Cut(rest, "\n\n")
		if lines := strings.Count(paragraph, "\n") + 1; paragraph != cmd.Long || lines < 2 || lines > 4 {
			t.Errorf("%s: behind the usage line is %q, of %d lines, want the command's Long in 2 to 4", path(cmd), paragraph, lines)
		}
		if cmd.HasParent() && !strings.Contains(strings.ReplaceAll(paragraph, "\n", " "), "never ") {
			t.Errorf("%s: %q does not say what it never does", path(cmd), paragraph)
		}
		wants := []string{"Usage: ", "Flags:\n", "Exit status:\n"}
		if cmd.HasParent() {
			wants = slices.Insert(wants, 1, "Examples:\n  ")
		}
		if cmd.Annotations[morePart] != "" {
			wants = append(wants, "More:\n")
		}
		inOrder(t, path(cmd), help, wants...)
		if asks := asksServers(cmd); asks != (strings.Count(help, "\n"+serversLine+"\n") == 1) {
			t.Errorf("%s: it asks servers: %v, and the line that names the topic servers is there or not, in\n%s", path(cmd), asks, help)
		}
		if cmd.HasParent() && strings.Contains(help, "keeps\nnobody out") {
			t.Errorf("%s has what 'locks help servers' is for, in\n%s", path(cmd), help)
		}
		narrow(t, path(cmd), help)
	}
	narrow(t, "servers", helpOf(t, "servers"))
}

func narrow(t *testing.T, what, help string) {
	t.Helper()
	for line := range strings.Lines(help) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 95 {
			t.Errorf("%s: a line has %d columns, want 95 at most:\n%s", what, n, line)
		}
	}
}

// TestDefaults: each flag says what it is by default, once, and none that it is nothing.
func TestDefaults(t *testing.T) {
	for _, cmd := range commands() {
		help := helpOf(t, strings.Fields(path(cmd))...)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			entry := regexp.MustCompile(`(?m)^ +(-\w, )?--` + f.Name + `\b.*\n( {10,}.*\n)*`).FindString(help)
			if entry == "" {
				t.Errorf("%s: there is no --%s in\n%s", path(cmd), f.Name, help)
			}
			if n := strings.Count(entry, "default"); n > 1 || strings.Contains(entry, "default 0s") || strings.Contains(entry, "default:") {
				t.Errorf("%s --%s: want one default, once, in\n%s", path(cmd), f.Name, entry)
			}
			if f.Value.Type() == "time" && !strings.Contains(entry, "(default ") {
				t.Errorf("%s --%s: want the default, in\n%s", path(cmd), f.Name, entry)
			}
		})
	}
}
