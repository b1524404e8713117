package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// Some trials need several processes. A child is this program, started again with
// a job in its environment; parent and child speak lines of text. The parent
// acknowledges each word, so the order in which it hears them is the order in
// which things happened: it needs no clocks to tell who held the lock when.

// childVar tells a process that it is a child, and what its job is.
const childVar = "LOCKS_CONFORMANCE_CHILD"

// mark begins the lines that children send, whatever else they print.
const mark = "conformance: "

// A job is what a child is to do.
type job struct {
	Subject string
	Lock    string
	Rounds  int // take the lock so often, and release it each time; 0: hold it until killed
	TTL     time.Duration
}

// Child makes this process a child of a trial, if it was started as one: it does its
// job and returns true, and main should return. Call it first in the main of a
// program that calls [Check], with all subjects that it checks.
func Child(subjects ...Subject) bool {
	j, ok := childJob()
	if !ok {
		return false
	}
	for _, s := range subjects {
		if s.Name == j.Subject {
			serve(s, j)
			return true
		}
	}
	say("error there is no subject %q here", j.Subject)
	return true
}

func childJob() (j job, ok bool) {
	text := os.Getenv(childVar)
	if text == "" {
		return job{}, false
	}
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		say("error %s: %v", childVar, err)
	}
	return j, true
}

func say(format string, args ...any) {
	fmt.Println(mark + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
}

// serve does a child's job.
func serve(s Subject, j job) {
	if err := work(s, j, bufio.NewReader(os.Stdin)); err != nil {
		say("error %v", err)
	}
}

func work(s Subject, j job, parent *bufio.Reader) error {
	st, err := s.Open(strategy.Options{TTL: j.TTL, OpTimeout: j.TTL * 3 / 4})
	if err != nil {
		return err
	}
	defer st.Close()
	tell := func(word string) error { // and wait for the answer
		say("%s", word)
		_, err := parent.ReadString('\n')
		return err // the parent is gone: so are we
	}
	if err := tell("ready"); err != nil {
		return err
	}
	ctx := context.Background()
	hold := func(word string) (strategy.Lease, error) {
		lease, err := st.NewLock(j.Lock).Acquire(ctx)
		if err != nil {
			return nil, err
		}
		if err := lease.KeepAlive(0); err != nil {
			return nil, err
		}
		return lease, tell(word)
	}
	if j.Rounds == 0 {
		if _, err := hold("in"); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, parent) // to be killed
		return err
	}
	for range j.Rounds {
		lease, err := hold("in")
		if err != nil {
			return err
		}
		if err := tell("out"); err != nil { // said before it is true: never too late
			return err
		}
		if err := lease.Release(ctx); err != nil {
			return err
		}
	}
	return tell("done")
}

// testArgs starts a test binary so that it comes to the Run in this test and to no
// other test.
func testArgs(name string) []string {
	var pattern []string
	for part := range strings.SplitSeq(name, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	return []string{"-test.run=" + strings.Join(pattern, "/"), "-test.count=1", "-test.timeout=5m"}
}

// A child is a process as its parent sees it.
type child struct {
	t     *trial
	who   string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	kill  context.CancelFunc
	ended chan struct{}
}

// A word is what a child said, or that it ended before its job was done.
type word struct {
	from *child
	text string
	err  error
}

// family starts n children with the same job. They are killed with the trial.
func (t *trial) family(n int, j job, words chan<- word) (children []*child, end func()) {
	t.needs(t.ChildEnv != nil, "Subject.ChildEnv is nil: the lock lives in one process")
	t.needs(t.ChildArgs != nil, "Subject.ChildArgs is nil: this program does not say how it becomes a child")
	if _, isChild := childJob(); isChild {
		t.brokef("a child must not have children: let main call conformance.Child, and return if it says so")
	}
	j.Subject, j.Lock = t.Name, t.name
	env, err := json.Marshal(j)
	if err != nil {
		t.brokef("the job: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		t.brokef("the program to run again: %w", err)
	}
	ctx, cancel := context.WithCancel(t.ctx)
	for i := range n {
		c := &child{t: t, who: fmt.Sprintf("child %d", i+1), ended: make(chan struct{})}
		own, kill := context.WithCancel(ctx)
		c.kill = kill
		c.cmd = exec.CommandContext(own, program, t.ChildArgs...)
		c.cmd.Env = append(append(os.Environ(), t.ChildEnv...), childVar+"="+string(env))
		c.cmd.WaitDelay = 5 * time.Second
		if err := c.start(ctx, words); err != nil {
			kill()
			cancel()
			t.brokef("starting a child: %w", err)
		}
		children = append(children, c)
	}
	return children, func() {
		cancel()
		for _, c := range children {
			<-c.ended
		}
	}
}

// start starts the process, and passes on what it says until it ends.
func (c *child) start(ctx context.Context, words chan<- word) error {
	var errs tail
	c.cmd.Stderr = &errs
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	c.stdin = stdin
	pass := func(w word) {
		select {
		case words <- w:
		case <-ctx.Done():
		}
	}
	go func() {
		defer close(c.ended)
		done := false
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), mark); ok {
				done = text == "done"
				pass(word{from: c, text: text})
			} else {
				fmt.Fprintln(&errs, lines.Text())
			}
		}
		err := c.cmd.Wait()
		if done && err == nil {
			return
		}
		pass(word{from: c, err: fmt.Errorf("%s ended (%v): %s", c.who, err, errs.String())})
	}()
	return nil
}

func (c *child) answer() { io.WriteString(c.stdin, "\n") }

// tail keeps the last of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - 4096; over > 0 {
		t.buf = t.buf[over:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// next is the next word of any child; the trial ends if one failed.
func (t *trial) next(words <-chan word) word {
	select {
	case w := <-words:
		switch {
		case w.err != nil:
			t.brokef("%w", w.err)
		case strings.HasPrefix(w.text, "error "):
			t.brokef("%s: %w", w.from.who, errors.New(w.text))
		}
		t.rec.add("%s: %s", w.from.who, w.text)
		return w
	case <-t.late(t.patience):
		t.failf("no child has said anything for %v, want them to get the lock in turn", t.patience)
	}
	return word{}
}

// processes is article 2's experiment: five children, one resource.
func processes(t *trial) {
	const n, rounds = 5, 4
	words := make(chan word)
	children, end := t.family(n, job{Rounds: rounds, TTL: ample.TTL}, words)
	defer end()
	for range n {
		if w := t.next(words); w.text != "ready" {
			t.brokef("%s said %q, want ready", w.from.who, w.text)
		}
	}
	for _, c := range children {
		c.answer() // all are there: go
	}
	var inside *child
	turns := map[*child]int{}
	for done := 0; done < n; {
		w := t.next(words)
		switch w.text {
		case "in":
			if inside != nil {
				t.failf("%s has the lock, and so has %s, want one at a time", w.from.who, inside.who)
			}
			inside = w.from
			turns[w.from]++
		case "out":
			inside = nil
		case "done":
			done++
		}
		w.from.answer()
	}
	for _, c := range children {
		if turns[c] != rounds {
			t.failf("%s had the lock %d times, want %d", c.who, turns[c], rounds)
		}
	}
}

// holderKilled lets a child take the lock and keep it alive, and kills it.
func holderKilled(t *trial) {
	words := make(chan word)
	children, end := t.family(1, job{TTL: 3 * t.ttl}, words)
	defer end()
	holder := children[0]
	for _, want := range []string{"ready", "in"} {
		if w := t.next(words); w.text != want {
			t.brokef("%s said %q, want %s", w.from.who, w.text, want)
		}
		holder.answer()
	}
	b := t.contender("B", ample)
	if k := b.try(); k.err == nil {
		t.tooSlow("the child did not come to renew") // every time, if the lock does not exclude
	} else {
		k.want(strategy.ErrHeld, "a child holds the lock")
	}
	t.rec.add("%s is killed", holder.who)
	holder.kill()
	b.eventually("its holder is dead, and the lock expires")
}
