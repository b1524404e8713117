// Tests how a child talks with its parent, says why it fails, is paused and killed, and dies with its parent.
package child_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/child"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
)

// A job says what the child of a test does.
type job struct{ Do string }

// middleVar makes this program the parent in TestChildrenDieWithTheirParent.
const middleVar = "LOCKS_CHILD_TEST_MIDDLE"

func TestMain(m *testing.M) {
	if child.Run("worker", work) {
		return
	}
	if os.Getenv(middleVar) != "" {
		middle()
		return
	}
	os.Exit(m.Run())
}

func work(ctx context.Context, parent *child.Parent, j job) error {
	switch j.Do {
	case "echo":
		for {
			var m map[string]int
			if err := parent.Receive(&m); err != nil {
				return err
			}
			fmt.Println("text between messages")
			if err := parent.Send(m); err != nil {
				return err
			}
		}
	case "fail":
		fmt.Println("text before the error")
		if err := parent.Send("last words"); err != nil {
			return err
		}
		return errors.New("planted error")
	case "panic":
		panic("planted panic")
	case "ask":
		return parent.Ask("may I?")
	case "ignore":
		<-ctx.Done()
		never := make(chan os.Signal, 1)
		signal.Notify(never, os.Interrupt)
		<-never // it has to be killed
	case "stop":
		if err := child.StopSelf(); err != nil {
			return err
		}
		return parent.Ask("resumed")
	case "have a child":
		_, err := child.Start(child.Config{Role: "worker", Job: j})
		return err
	}
	return fmt.Errorf("no test does %q", j.Do)
}

// limit is for what takes milliseconds on an idle machine.
const limit = time.Minute

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, do string) *child.Process {
	t.Helper()
	p, err := child.Start(child.Config{Role: "worker", Job: job{do}})
	check(t, err)
	t.Cleanup(func() { p.Kill() })
	return p
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ended checks that err is ErrEnded and says all of words.
func ended(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, child.ErrEnded) {
		t.Errorf("%s: %v, want ErrEnded", what, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v, want it to say %q", what, err, w)
		}
	}
}

// TestMessages: they arrive in order, whatever else the child prints and however long they are.
func TestMessages(t *testing.T) {
	t.Parallel()
	ctx, p := within(t), start(t, "echo")
	long := strings.Repeat("x", 1<<17)
	for i := range 3 {
		check(t, p.Send(map[string]int{long: i}))
	}
	for i := range 3 {
		var got map[string]int
		check(t, p.Receive(ctx, &got))
		if n, ok := got[long]; n != i || !ok {
			t.Errorf("message %d has come back as %d, %v", i, n, ok)
		}
	}
	left, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("enough"))
	if err := p.Receive(left, new(any)); err == nil || err.Error() != "enough" {
		t.Errorf("Receive with a context that is done: %v, want its cause", err)
	}
	check(t, p.Close(limit))
	ended(t, "Receive after Close", p.Receive(ctx, new(any)), "exit status 0")
	check(t, p.Kill())
}

// TestAsk: the child waits for an answer, whatever it is, and ends in peace without one.
func TestAsk(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{true, false} {
		p := start(t, "ask")
		var question string
		check(t, p.Receive(within(t), &question))
		if question != "may I?" {
			t.Errorf("the child asks %q, want may I?", question)
		}
		if answered {
			check(t, p.Send(nil))
			ended(t, "Receive", p.Receive(within(t), new(any)), "exit status 0")
		}
		check(t, p.Close(limit))
	}
}

// TestErrors: a child that fails says why, after its last message, and so does each call.
func TestErrors(t *testing.T) {
	t.Parallel()
	for do, words := range map[string][]string{
		"fail":         {"exit status 1", "text before the error", "planted error"},
		"panic":        {"exit status 2", "planted panic"},
		"have a child": {"must not start children"},
		"nothing":      {`"nothing"`},
	} {
		t.Run(do, func(t *testing.T) {
			t.Parallel()
			ctx, p := within(t), start(t, do)
			if do == "fail" {
				var last string
				check(t, p.Receive(ctx, &last))
				if last != "last words" {
					t.Errorf("the child said %q, want last words", last)
				}
			}
			ended(t, "Receive", p.Receive(ctx, new(any)), words...)
			for i := range 2 {
				ended(t, fmt.Sprintf("Kill, call %d", i+1), p.Kill(), words...)
			}
			ended(t, "Close", p.Close(limit), words...)
			check(t, p.Send("into the void"))
		})
	}
}

// TestKill: a killed child is no failure, and its messages end with how it ended.
func TestKill(t *testing.T) {
	t.Parallel()
	ctx, p := within(t), start(t, "ask") // and nobody has heard it
	check(t, p.Kill())
	check(t, p.Kill())
	check(t, p.Close(limit))
	for {
		err := p.Receive(ctx, new(any))
		if err == nil {
			continue // it had asked
		}
		ended(t, "Receive", err)
		if runtime.GOOS != "windows" {
			ended(t, "Receive", err, "signal: killed")
		}
		break
	}
}

// TestCloseKills: a child that does not end when it should is killed.
func TestCloseKills(t *testing.T) {
	t.Parallel()
	p := start(t, "ignore")
	began := time.Now()
	ended(t, "Close", p.Close(100*time.Millisecond))
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("Close took %v, want it to wait for 100ms", took)
	}
}

// TestPause: a paused child says nothing until it is resumed, and can be killed.
func TestPause(t *testing.T) {
	t.Parallel()
	ctx, p := within(t), start(t, "echo")
	err := p.Pause(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	check(t, err)
	check(t, p.Stopped(ctx))
	check(t, p.Send(map[string]int{"a": 1}))
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := p.Receive(short, new(any)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Receive from a paused child: %v, want that it says nothing", err)
	}
	check(t, p.Resume())
	check(t, p.Receive(ctx, new(any)))
	short, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := p.Stopped(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stopped of a child that was resumed: %v, want that it is not stopped", err)
	}
	check(t, p.Pause(ctx))
	check(t, p.Kill())
	if err := p.Pause(ctx); err == nil {
		t.Error("a killed child was paused, want an error")
	}
}

// TestStopSelf: a child stops itself, and goes on where it stopped.
func TestStopSelf(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGSTOP")
	}
	ctx, p := within(t), start(t, "stop")
	check(t, p.Stopped(ctx))
	check(t, p.Resume())
	var got string
	check(t, p.Receive(ctx, &got))
	if got != "resumed" {
		t.Errorf("the child says %q, want resumed", got)
	}
	check(t, p.Close(limit))
}

// TestRoles: only a child in a role has that role's job.
func TestRoles(t *testing.T) {
	if _, ok := child.JobOf[job]("worker"); ok {
		t.Error("a process that is no child has a job")
	}
	t.Setenv("LOCKS_CHILD", `{"Role": "another", "Job": 7}`)
	if _, ok := child.JobOf[job]("worker"); ok {
		t.Error("a child in another role has a job in this one")
	}
	if n, ok := child.JobOf[int]("another"); n != 7 || !ok {
		t.Errorf("the job is %d, %v, want 7", n, ok)
	}
}

// TestChildrenDieWithTheirParent, also when a kill ends it. A paused child dies with it on Linux.
func TestChildrenDieWithTheirParent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("this looks at processes as Unix does")
	}
	self, err := os.Executable()
	check(t, err)
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), middleVar+"=1")
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	check(t, err)
	check(t, parent.Start())
	pids, err := bufio.NewReader(out).ReadString('\n')
	parent.Process.Kill()
	parent.Wait()
	check(t, err)
	for pid := range strings.FieldsSeq(pids) {
		if _, err := strconv.Atoi(pid); err != nil {
			t.Fatalf("the parent said %q, want the numbers of its children", pids)
		}
		verdict.Eventually(t, "process "+pid+" has died with its parent", func() bool {
			state, _ := exec.Command("ps", "-o", "state=", "-p", pid).Output()
			return len(state) == 0 || state[0] == 'Z' // nobody may reap it, but it is dead
		})
	}
}

// middle starts children, says who they are, and waits to be killed.
func middle() {
	for _, c := range []struct {
		config child.Config
		paused bool
	}{
		{config: child.Config{}},
		{config: child.Config{CleansUp: true}}, // reads the end of its input
		{paused: runtime.GOOS == "linux"},
	} {
		c.config.Role, c.config.Job = "worker", job{"echo"}
		p, err := child.Start(c.config)
		if err == nil && c.paused {
			err = p.Pause(context.Background())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Print(p.PID(), " ")
	}
	fmt.Println()
	select {}
}
