package main

// The program lab: the report as a page.

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/testkit/clitest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/lessons"
)

// TestReportTarget: what cannot be written is said before anything is played.
func TestReportTarget(t *testing.T) {
	folder := t.TempDir()
	for file, want := range map[string]string{folder: "is a folder", filepath.Join(folder, "nowhere", "page.html"): "cannot be written"} {
		var out, errs bytes.Buffer
		if code := cli.Execute(t.Context(), rootCommand(), []string{"report", "-o", file}, nil, &out, &errs); code != 1 || out.Len() > 0 || !strings.Contains(errs.String(), want) {
			t.Errorf("-o %s: exit %d, %q, %q, want exit 1 and %q", file, code, out.String(), errs.String(), want)
		}
	}
}

// printed runs what a command does, and returns what it says on its standard output.
func printed(t *testing.T, run func(*cobra.Command) error) (string, error) {
	t.Setenv(clitest.MainVar, "1") // for the children of trials
	var out, errs bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err := run(cmd)
	t.Log(errs.String())
	return out.String(), err
}

// pageWith is a page that was written, with all these words.
func pageWith(t *testing.T, file string, words ...string) string {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range words {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	return string(page)
}

// TestReport: a whole page, of one strategy, where there is no real Redis.
func TestReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	few := slices.DeleteFunc(lessons.All(), func(l lessons.Lesson) bool { return l.Number%6 != 1 }) // package lessons gives them all
	p := reporter{servers: servers{embedded: true}, output: file, lessons: few, each: leastDuration, variants: slices.DeleteFunc(subjects.All(), func(v subjects.Variant) bool { return v.Name != "luascript" })}
	out, err := printed(t, p.run)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.HasPrefix(out, "redis: EMBEDDED ") || !strings.HasSuffix(out, "page.html is written: open it in a browser.\n") {
		t.Errorf("stdout is %q, want the choice, and where the page is", out)
	}
	page := pageWith(t, file, "<!DOCTYPE html>", "Times mean nothing here.", "lab report --embedded</code>", "p50 in PINGs", "restart, nothing persisted", "</html>")
	for _, l := range few {
		if !strings.Contains(page, `id="lesson-`+l.Name+`"`) {
			t.Errorf("lesson %d, %s, is not in the page, nor why it was not given", l.Number, l.Name)
		}
	}
	if strings.Contains(page, filepath.Dir(file)) {
		t.Error("the page has the name of somebody's folder")
	}
}

// TestReportUncompared: the server dies after the lessons; the page has these, and says what it
// lacks.
func TestReportUncompared(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	v := slices.DeleteFunc(subjects.All(), func(v subjects.Variant) bool { return v.Name != "setnxpx" })
	on := v[0].On
	v[0].On = func(nodes []driver.Node) driver.Protocol {
		if err := s.Kill(t.Context()); err != nil && !s.Dead() {
			t.Error(err)
		}
		return on(nodes)
	}
	file := filepath.Join(t.TempDir(), "page.html")
	first := lessons.All()[:1]
	p := reporter{servers: servers{redis: []string{s.Addr()}}, output: file, lessons: first, each: leastDuration, variants: v}
	if _, err := printed(t, p.run); err == nil || !strings.Contains(err.Error(), "the strategies were not compared: ") {
		t.Errorf("%v, want why there is no comparison", err)
	}
	if strings.Contains(pageWith(t, file, `id="lesson-setnx"`, "<strong>Not compared:</strong> ", `id="faults"`, "</html>"), `id="speed"`) {
		t.Error("the page has the speed of what was not measured")
	}
}
