package child

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Config says what a child is started as.
type Config struct {
	Role string
	Job  any // goes to the child in JSON

	Program string   // empty: this one. Another must know the role
	Args    []string // of the program
	Env     []string // nil: this process's

	// CleansUp: the child has to clean up when its parent is gone, so it must not be killed then.
	CleansUp bool
}

// ErrEnded says that a child's process is gone.
var ErrEnded = errors.New("the process ended")

// A Process is a child as its parent sees it.
type Process struct {
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	messages chan []byte
	text     tail          // what it wrote for people
	unread   chan struct{} // closed when nobody receives any more
	ended    chan struct{} // closed when the process is gone

	mu             sync.Mutex
	killed, closed bool // by us, while it lived
}

// Start starts this program again. [Process.Kill] or [Process.Close] must end the child.
func Start(c Config) (*Process, error) {
	if os.Getenv(variable) != "" {
		return nil, errors.New("child: a child must not start children: main must call the function that does the child's job first, and return")
	}
	if c.Program == "" {
		var err error
		if c.Program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	job, err := json.Marshal(c.Job)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(birth{c.Role, job})
	if err != nil {
		return nil, err
	}
	p := &Process{
		cmd:      exec.Command(c.Program, c.Args...),
		messages: make(chan []byte), unread: make(chan struct{}), ended: make(chan struct{}),
	}
	if c.Env == nil {
		c.Env = os.Environ()
	}
	p.cmd.Env = slices.Concat(c.Env, []string{variable + "=" + string(b),
		"GORACE=" + os.Getenv("GORACE") + " atexit_sleep_ms=0"}) // or the race detector adds a second to each end
	p.cmd.Stderr = &p.text
	p.cmd.WaitDelay = 5 * time.Second // if another process has inherited its standard error
	if !c.CleansUp {
		endWithParent(p.cmd)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		// Linux takes the thread that started a child for its parent: it must not end before.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.listen(bufio.NewReader(stdout))
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// listen passes messages on until the process ends.
func (p *Process) listen(stdout *bufio.Reader) {
	defer close(p.ended)
	for {
		line, err := stdout.ReadBytes('\n')
		message, ok := bytes.CutPrefix(line, []byte(mark))
		switch {
		case !ok:
			p.text.Write(line)
		case err == nil: // a kill did not cut it off
			select {
			case p.messages <- message:
			case <-p.unread:
			}
		}
		if err != nil {
			break
		}
	}
	p.cmd.Wait() // its error is in ProcessState
}

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Send sends a message to the child. Goroutines may send at the same time. The pipe to a child
// that is paused holds some hundreds of messages. Receive reports that a child has ended, not Send.
func (p *Process) Send(message any) error {
	line, err := encode("", message)
	if err == nil {
		p.stdin.Write(line)
	}
	return err
}

// Receive waits for the child's next message and decodes it. [ErrEnded] says that there will be
// none. Its text has how the process ended and the last of what it wrote apart from messages.
func (p *Process) Receive(ctx context.Context, message any) error {
	select {
	case text := <-p.messages:
		return json.Unmarshal(text, message)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ended:
		return p.end()
	}
}

// end says how the process ended.
func (p *Process) end() error {
	text := strings.TrimSpace(p.text.String())
	if text != "" {
		text = ": " + text
	}
	return fmt.Errorf("%w (%v)%s", ErrEnded, p.cmd.ProcessState, text)
}

func (p *Process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Kill ends the process with SIGKILL and returns when it is gone. [ErrEnded] says that it had
// ended by itself before, without [Process.Close].
func (p *Process) Kill() error {
	p.mu.Lock()
	ours := p.killed || p.closed
	if !ours && p.hasEnded() {
		p.mu.Unlock()
		return p.end()
	}
	p.killed = true
	p.listenNoMore()
	p.mu.Unlock()
	p.cmd.Process.Kill() // an error says that it has just ended
	<-p.ended
	if !ours && p.exited() {
		p.mu.Lock()
		p.killed = false
		p.mu.Unlock()
		return p.end()
	}
	return nil
}

// exited reports whether the process ended otherwise than by a signal. On Windows a process that is
// killed exits, too.
func (p *Process) exited() bool { return p.cmd.ProcessState.Exited() && runtime.GOOS != "windows" }

// Close closes the child's input, at which the child has to end, and returns when it is no
// more. After limit the child is killed. The error says how the process ended. It is nil for exit
// status 0 and after Kill.
func (p *Process) Close(limit time.Duration) error {
	p.mu.Lock()
	p.closed = p.closed || !p.hasEnded()
	p.listenNoMore()
	p.mu.Unlock()
	p.stdin.Close()
	late := time.AfterFunc(limit, func() { p.cmd.Process.Kill() })
	<-p.ended
	late.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed || p.cmd.ProcessState.Success() {
		return nil
	}
	return p.end()
}

func (p *Process) listenNoMore() {
	select {
	case <-p.unread:
	default:
		close(p.unread)
	}
}

// Pause stops the process with SIGSTOP and returns when it is paused. On systems without that
// signal the error is [errors.ErrUnsupported].
func (p *Process) Pause(ctx context.Context) error {
	if err := stop(p.cmd.Process); err != nil {
		return fmt.Errorf("pausing a child: %w", err)
	}
	return p.Stopped(ctx)
}

// Stopped returns when the process is paused, by Pause or by [StopSelf].
func (p *Process) Stopped(ctx context.Context) error {
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		switch yes, err := isStopped(p.PID()); {
		case p.hasEnded():
			return p.end()
		case err != nil:
			return fmt.Errorf("waiting until a child is paused: %w", err)
		case yes:
			return nil
		}
		select {
		case <-time.After(wait):
		case <-p.ended:
		case <-ctx.Done():
			return fmt.Errorf("waiting until a child is paused: %w", context.Cause(ctx))
		}
	}
}

// Resume lets a paused process go on. It does nothing to others.
func (p *Process) Resume() error { return resume(p.cmd.Process) }

// StopSelf pauses this process, and returns when its parent calls [Process.Resume].
func StopSelf() error { return stopSelf() }

// tail keeps the last of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - 1<<14; over > 0 { // a report of the race detector fits
		t.buf = t.buf[over:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
