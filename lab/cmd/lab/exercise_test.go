package main

// The program lab: exercises, and what docs/learn/exercises.md shows of them.

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/clitest"
	"github.com/lockstrategies/locks/lab/exercises"
)

// TestExercise: a lock with a mistake is convicted, and looks as the page says.
func TestExercise(t *testing.T) {
	t.Parallel()
	out, errs, code := clitest.RunIn(t, []string{"COLUMNS=90"}, "exercise", "4", "--embedded")
	if strings.Contains(out, "? NOT JUDGED") {
		t.Skip("NOT PROVEN: what a verdict looks like: the machine is too slow")
	}
	if code != 1 || errs != "" {
		t.Errorf("exit %d, %q, want 1 and no more to say:\n%s", code, errs, out)
	}
	wantShape(t, out, 90)
	page, err := os.ReadFile("../../../docs/learn/exercises.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(page), "```text\n")
	shown, _, _ = strings.Cut(shown, "```\n")
	if got := timeless(out); got != timeless("\n"+shown) || len(got) < 1000 {
		t.Errorf("there is\n%s\nwant as docs/learn/exercises.md has it:\n%s", got, shown)
	}
}

// TestExerciseAll: each has a line, with what is broken.
func TestExerciseAll(t *testing.T) {
	t.Parallel()
	out, _, code := clitest.Run(t, "exercise", "--all", "--embedded")
	if n := strings.Count(out, "\n✗ "); code != 1 || n != len(exercises.All()) || !strings.Contains(out, "  ReleaseOnlyOwn, ") {
		t.Errorf("exit %d, %d of %d lines, in\n%s", code, n, len(exercises.All()), out)
	}
}

// TestExerciseList: each exercise is there, and so is its solution.
func TestExerciseList(t *testing.T) {
	t.Parallel()
	list, _, _ := clitest.Run(t, "exercise")
	wantShape(t, list, 80)
	for _, e := range exercises.All() {
		out, _, code := clitest.Run(t, "exercise", fmt.Sprint(e.Number), "--solution")
		if !strings.Contains(list, e.Title) || code != 0 || !strings.HasPrefix(out, "package solutions\n") || !strings.Contains(out, "In this project: "+e.Right) {
			t.Errorf("exercise %d is not in the list, or has no solution:\n%s\n%s", e.Number, list, out)
		}
	}
}
