// Command model has the checker Spin look for the shortest history of redlock.pml that breaks a promise, and prints it in plain
// words. Its arguments are a variant to check instead of the list, such as -DGUARD=0: docs/learn/model.md.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

//go:embed redlock.pml
var model string

// A variant of the model is what it sets, as Spin's flags.
type variant struct {
	flags, title string
	breaks       bool
}

var variants = []variant{
	{"-DGUARD=0 -DRESTARTS=1", "A node restarts empty, and there is no guard", true},
	{"-DRESTARTS=1", "A node restarts empty, and the guard is on", false},
	{"-DJUMPS=1", "A node's clock jumps ahead, and the guard is on", true},
	{"-DFENCES=1", "Fences in one phase: each node counts for itself", true},
	{"-DFENCES=2", "Fences in two phases: a quorum notes the number before the lock counts", false},
}

// limit is how long one of them may take. On an idle machine each takes two seconds.
const limit = time.Minute

var errNoSpin = errors.New("this needs Spin and a C compiler: apt-get install spin gcc, or brew install spin")

func main() {
	all, own := variants, len(os.Args) > 1
	for _, flag := range os.Args[1:] {
		if name := regexp.MustCompile(`^-D(\w+)=\d+$`).FindStringSubmatch(flag); name == nil || !strings.Contains(model, "#ifndef "+name[1]+"\n") {
			fmt.Fprintf(os.Stderr, "%s sets nothing: allowed are -DNAME=NUMBER with the names after #ifndef in redlock.pml\n", flag)
			os.Exit(2)
		}
	}
	if own {
		all = []variant{{flags: strings.Join(os.Args[1:], " "), title: "Your variant"}}
	}
	asTaught := true
	for i, v := range all {
		history, states, err := check(model, v.flags)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Printf("%d. %s (%s)\n%s\n", i+1, v.title, v.flags, finding(history, states))
		asTaught = asTaught && (own || v.breaks == (len(history) > 0))
	}
	if !asTaught {
		fmt.Fprintln(os.Stderr, "This is not what docs/learn/model.md says.")
		os.Exit(1)
	}
}

// finding says in words what check found.
func finding(history []string, states string) string {
	if len(history) == 0 {
		return fmt.Sprintf("   Holds in all %s states.\n", states)
	}
	var b strings.Builder
	last := len(history) - 1
	fmt.Fprintf(&b, "   %s:\n", history[last])
	for i, step := range history[:last] {
		fmt.Fprintf(&b, "   %2d  %s\n", i+1, step)
	}
	return b.String()
}

var (
	stored = regexp.MustCompile(`(\d+) states, stored`)
	errs   = regexp.MustCompile(`errors: (\d+)`)
)

// check searches all histories of a variant, the shortest first. history ends with what is wrong; empty: nothing is.
func check(model, flags string) (history []string, states string, err error) {
	for _, tool := range []string{"spin", "cc"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, "", errNoSpin
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	dir, err := os.MkdirTemp("", "model")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "redlock.pml"), []byte(model), 0o600); err != nil {
		return nil, "", err
	}
	run := func(command string) (string, error) {
		words := strings.Fields(command)
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s: %w\n%s", command, cmp.Or(ctx.Err(), err), out)
		}
		return string(out), err
	}
	if _, err := run("spin " + flags + " -a redlock.pml"); err != nil {
		return nil, "", err
	}
	if _, err := run("cc -O1 -w -DSAFETY -DBFS -o pan pan.c"); err != nil {
		return nil, "", err
	}
	out, err := run("./pan -E") // -E: a contender may stop anywhere
	found, count := errs.FindStringSubmatch(out), stored.FindStringSubmatch(out)
	switch {
	case err != nil:
		return nil, "", err
	case found == nil || count == nil:
		return nil, "", fmt.Errorf("spin: the output says nothing of states and errors:\n%s", out)
	case found[1] == "0" && strings.Contains(out, "not completed"):
		return nil, "", fmt.Errorf("spin: not all states were searched:\n%s", out)
	case found[1] == "0":
		return nil, count[1], nil
	}
	out, err = run("spin -T -t " + flags + " redlock.pml")
	steps, _, ok := strings.Cut(out, "\nspin:")
	if !ok {
		return nil, "", fmt.Errorf("spin: the history cannot be played: %v\n%s", err, out)
	}
	return strings.Split(steps, "\n"), count[1], nil
}
