//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Tests the manual pages: that they say what the help says, in words that roff does not take for requests.
package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// TestManual: there is a page for each command that users see, with its help, the same each time.
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
	request := regexp.MustCompile(`^\.(TH|SH|nf|fi)\b`)
	seen := 0
	for _, cmd := range append(rootCommand().Commands(), rootCommand()) {
		page := pageOf(cmd) + ".1"
		if cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() {
			if all[page] != "" {
				t.Errorf("there is a page for %s, which is no command for users", cmd.Name())
			}
			continue
		}
		seen++
		want := ".nf\n" + escape(helpOf(t, strings.Fields(path(cmd))...))
		if cmd.Name() == "locks" || asksServers(cmd) {
			want += "\n" + escape(serversHelp) + "\n"
		}
		if !strings.Contains(all[page], want+".fi\n") {
			t.Errorf("%s has not the help\n%s\nin\n%s", page, want, all[page])
		}
		inOrder(t, page, all[page], ".TH "+strings.ToUpper(pageOf(cmd))+" 1 ", ".SH NAME", escape(pageOf(cmd))+` \- `+escape(cmd.Short), ".SH DESCRIPTION", ".SH SEE ALSO")
		if also := `\fB` + escape(pageOf(cmd)) + `\fR(1)`; cmd.HasParent() && !strings.Contains(all["locks.1"], also) {
			t.Errorf("locks.1 does not lead to %s", page)
		}
	}
	if len(all) != seen || seen < 8 {
		t.Errorf("there are %d pages, want those of locks and its %d commands", len(all), seen-1)
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

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"a-b": `a\-b`, `\n`: `\en`, ".TH x\n.x\n'y\n-": "\\&.TH x\n\\&.x\n\\&'y\n\\-", "'": `\&'`, "a.b'c": "a.b'c",
	} {
		if got := escape(text); got != want {
			t.Errorf("escape(%q) = %q, want %q", text, got, want)
		}
	}
}
