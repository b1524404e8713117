//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Tests the manual pages: that they say all that the help says, in words that roff does not take for requests.
package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// TestManual: there is a page for each command that users see, with all its flags, the same each time.
func TestManual(t *testing.T) {
	t.Parallel()
	pages := func() map[string]string {
		dir, all := t.TempDir(), map[string]string{}
		if out := toolFor(t, nil, "man", dir).start().wantEnd(0); out != "" {
			t.Errorf("it prints %q", out)
		}
		files, _ := filepath.Glob(filepath.Join(dir, "*"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			redistest.Must(t, err)
			all[filepath.Base(file)] = string(text)
		}
		return all
	}
	all := pages()
	if !maps.Equal(all, pages()) {
		t.Error("the second time the pages are others")
	}
	has := func(page string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(all[page], want) {
				t.Errorf("%s has no %q in\n%s", page, want, all[page])
			}
		}
	}
	request := regexp.MustCompile(`^\.(TH|SH|TP|PP|B|nf|fi)\b`)
	seen := 0
	for _, cmd := range rootCommand().Commands() {
		page := "locks-" + cmd.Name() + ".1"
		if cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() {
			if all[page] != "" {
				t.Errorf("there is a page for %s, which is no command for users", cmd.Name())
			}
			continue
		}
		seen++
		has("locks.1", ".B locks "+cmd.Name()+"\n"+escape(cmd.Short)+"\n", `\fBlocks\-`+cmd.Name()+`\fR(1)`)
		has(page, "\n.SH SYNOPSIS\n.B locks "+cmd.Name(), "\n.SH EXAMPLES\n.nf\n  ", "\n  locks "+cmd.Name(), `\fB\-h\fR, \fB\-\-help\fR`, `\fBlocks\fR(1)`)
		has(page, prose(cmd.Long), prose(cmd.Annotations[morePart]), ".SH EXIT STATUS\n"+prose(cmd.Annotations[exitPart]))
		if cmd.Flags().Lookup("redis") != nil {
			has(page, ".SH SERVERS\n"+prose(serversHelp)+".SH SEE ALSO\n")
		}
		inOrder(t, page, all[page], ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH EXAMPLES", ".SH OPTIONS", ".SH EXIT STATUS", ".SH SEE ALSO")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			what, usage := pflag.UnquoteUsage(f)
			has(page, `\fB`+escape("--"+f.Name)+`\fR`+map[bool]string{true: ` \fI` + what + `\fR`}[what != ""]+"\n"+escape(usage))
		})
	}
	if len(all) != seen+1 || seen < 7 {
		t.Errorf("there are %d pages, want those of locks and its %d commands", len(all), seen)
	}
	for page, text := range all {
		if strings.Contains(text, `\fBlocks\-completion\fR(1)`) {
			t.Errorf("%s leads to the page of completion, which there is not", page)
		}
		for line := range strings.Lines(text) {
			if (line[0] == '.' || line[0] == '\'') && !request.MatchString(line) || strings.Contains(line, "exec-watch") {
				t.Errorf("%s: %q is no request that a page has, or is not for users", page, line)
			}
		}
	}
	has("locks-exec.1", "\n.TP\n.B 76\nthe lock was lost, or \\-\\-max\\-hold was over, before the command ended; also if the\ncommand succeeded", "seconds), 90s or 2m (default 30s)\n")
	has("locks.1", ".SH EXIT STATUS\n", `\fB\-v\fR, \fB\-\-version\fR`, ".SH SERVERS\n"+prose(serversHelp), ".B locks COMMAND [flags]\n")
}

// TestManualsDirectory: man makes it, with its parents, and says why it cannot.
func TestManualsDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "share", "man")
	page := filepath.Join(dir, "locks.1")
	for range 2 { // once it is there
		toolFor(t, nil, "man", dir).start().wantEnd(0)
		if _, err := os.Stat(page); err != nil {
			t.Error(err)
		}
	}
	toolFor(t, nil, "man", filepath.Join(page, "deeper")).start().wantEnd(1, "not a directory")
}

// prose is a text as a page has it.
func prose(text string) string {
	var b strings.Builder
	writeProse(&b, text)
	return b.String()
}

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"a-b": `a\-b`, `\n`: `\en`, ".TH x\n.x\n'y\n-": "\\&.TH x\n\\&.x\n\\&'y\n\\-", "'": `\&'`, "a.b'c": "a.b'c",
	} {
		if got := escape(text); got != want {
			t.Errorf("escape(%q) = %q, want %q", text, got, want)
		}
	}
}
