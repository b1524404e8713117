package contender

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/lab/history"
)

// Parent and child speak lines of JSON: commands to the child's standard input, replies,
// in whatever order they come, on its standard output. The first reply, with the ID 0,
// says that the contender is open, or why not. The history goes to a file, line by line
// as things happen, where it outlives the child.
//
// A child whose parent is gone reads the end of its input, and ends; where the system
// offers it, it is killed together with its parent, also while it stands still.

// childVar tells a process that it is a contender, and which.
const childVar = "LOCKS_CONTENDER"

// mark begins the lines that children send, whatever else they print.
const mark = "contender: "

// A birth is what a child finds in its environment.
type birth struct {
	Setup Setup
	Log   string // the file of its history
}

// startLimit is how long a process may take to come up on a loaded machine.
const startLimit = 60 * time.Second

// process is the seat in a process of its own.
type process struct {
	who   string
	log   *os.File // of its history; its name is gone
	cmd   *exec.Cmd
	errs  tail
	stdin io.WriteCloser

	ended chan struct{} // closed when the process is no more
	end   error         // how it ended; written before ended is closed

	born chan reply // the first

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan reply // by the command's ID
	killed  bool                  // and it had not ended before
	closing bool

	once    sync.Once // close
	closed  error
	history []history.Op // read before the log was closed; nil: it is not
}

// Start opens a contender in a process of its own: this program again, which calls
// [Child]. ctx bounds the start; the process ends with Kill or Close.
func Start(ctx context.Context, s Setup) (*Contender, error) {
	if s.Around != nil {
		return nil, errors.New("contender: Setup.Around for another process: allowed is nil; a function stays here")
	}
	if os.Getenv(childVar) != "" {
		return nil, errors.New("contender: a contender must not start others: let main call contender.Child first, and return if it says so")
	}
	p, err := start(s)
	if err != nil {
		return nil, fmt.Errorf("contender: starting %s: %w", s.Name, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("it has said nothing for %v", startLimit))
	defer cancel()
	_, err = p.hear(ctx, p.born)
	err = errors.Join(err, os.Remove(p.log.Name())) // both have it open: so nothing is left of it, however they end
	if err != nil {
		p.kill() // an error says no more than close
		return nil, fmt.Errorf("contender: starting %s: %w", s.Name, errors.Join(err, p.close()))
	}
	return &Contender{s, p}, nil
}

func start(s Setup) (p *process, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.CreateTemp("", "locks-contender-*.jsonl")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, log.Close(), os.Remove(log.Name()))
		}
	}()
	b, err := json.Marshal(birth{s, log.Name()})
	if err != nil {
		return nil, err
	}
	p = &process{
		who: s.Name, log: log, cmd: exec.Command(program),
		ended: make(chan struct{}),
		born:  make(chan reply, 1),
	}
	p.waiting = map[uint64]chan reply{0: p.born}
	p.cmd.Env = append(os.Environ(), childVar+"="+string(b),
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0") // or each end takes the race detector a second
	p.cmd.Stderr = &p.errs
	endWithParent(p.cmd)
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.listen(stdout)
	return p, nil
}

// listen passes replies on until the process ends.
func (p *process) listen(stdout io.Reader) {
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		text, ok := strings.CutPrefix(line, mark)
		var r reply
		switch {
		case err != nil: // nothing, or the beginning of a line that a kill cut off
		case !ok:
			io.WriteString(&p.errs, line)
		case json.Unmarshal([]byte(text), &r) != nil:
			io.WriteString(&p.errs, line)
		default:
			p.mu.Lock()
			if ch := p.waiting[r.ID]; ch != nil {
				delete(p.waiting, r.ID)
				ch <- r
			}
			p.mu.Unlock()
		}
		if err != nil {
			break
		}
	}
	p.end = p.cmd.Wait()
	close(p.ended)
}

// do sends a command and waits for its reply.
func (p *process) do(ctx context.Context, c command) (reply, error) {
	if ctx.Err() != nil {
		return reply{}, context.Cause(ctx)
	}
	p.mu.Lock()
	p.last++
	c.ID = p.last
	answer := make(chan reply, 1)
	p.waiting[c.ID] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.waiting, c.ID)
		p.mu.Unlock()
	}()
	if err := p.tell(c); err != nil {
		return reply{}, err
	}
	r, err := p.hear(ctx, answer)
	if err != nil && ctx.Err() != nil {
		p.tell(command{ID: c.ID, Do: doGiveUp}) // if it is gone, it has given up
	}
	return r, err
}

// tell writes a command. The pipe of a process that stands still holds some hundreds of
// them.
func (p *process) tell(c command) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	p.mu.Lock()
	_, err = p.stdin.Write(append(line, '\n'))
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s of %s: %w", c.Do, p.who, errors.Join(err, p.gone()))
	}
	return nil
}

// ErrEnded says that a contender's process is no more.
var ErrEnded = errors.New("the process has ended")

// gone is what became of the process; nil while it lives.
func (p *process) gone() error {
	select {
	case <-p.ended:
	default:
		return nil
	}
	return fmt.Errorf("%w (%v): %s", ErrEnded, p.end, strings.TrimSpace(p.errs.String()))
}

func (p *process) hear(ctx context.Context, ch <-chan reply) (reply, error) {
	select {
	case r := <-ch:
		return r.open()
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	case <-p.ended:
	}
	select {
	case r := <-ch: // its last words
		return r.open()
	default:
		return reply{}, fmt.Errorf("%s: %w", p.who, p.gone())
	}
}

// open takes the error out of a reply.
func (r reply) open() (reply, error) {
	if r.Error != nil {
		return r, r.Error
	}
	return r, nil
}

func (p *process) ops() ([]history.Op, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.history != nil {
		return p.history, nil
	}
	return history.Read(io.NewSectionReader(p.log, 0, math.MaxInt64))
}

// kill tells, too, if the process had ended by itself.
func (p *process) kill() error {
	p.mu.Lock()
	over := p.killed || p.closing
	p.mu.Unlock()
	if over {
		p.cmd.Process.Kill() // it may be slow to close
		<-p.ended
		return nil
	}
	if err := p.gone(); err != nil {
		return err
	}
	p.cmd.Process.Kill() // an error says that it has just ended
	<-p.ended
	if endedByItself(p.cmd.ProcessState) { // just before
		return p.gone()
	}
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	return nil
}

// closeLimit is how long a process may take to close its strategy, when nothing is in its
// way but a loaded machine and servers that do not answer.
const closeLimit = 30 * time.Second

func (p *process) close() error {
	p.once.Do(func() { p.closed = p.doClose() })
	return p.closed
}

func (p *process) doClose() error {
	var err error
	p.mu.Lock()
	killed := p.killed
	p.closing = true
	p.mu.Unlock()
	if !killed {
		p.thaw() // an error says that it has ended; how is told below
		ctx, cancel := context.WithTimeoutCause(context.Background(), closeLimit, fmt.Errorf("closing it takes more than %v", closeLimit))
		_, err = p.do(ctx, command{Do: doClose})
		cancel()
		p.stdin.Close()
		late := time.AfterFunc(closeLimit, func() { p.cmd.Process.Kill() })
		<-p.ended
		late.Stop()
		if p.end != nil && !errors.Is(err, ErrEnded) { // whatever it said before
			err = errors.Join(err, p.gone())
		}
	} else {
		p.stdin.Close()
	}
	if err != nil {
		err = fmt.Errorf("contender: closing %s: %w", p.who, err)
	}
	ops, readErr := p.ops()
	p.mu.Lock()
	if p.history = ops; ops == nil {
		p.history = []history.Op{}
	}
	p.mu.Unlock()
	return errors.Join(err, readErr, p.log.Close())
}

// Child makes this process a contender, if [Start] started it as one, with one of the
// known variants: it obeys until its parent is gone, and returns true; then main should
// return. Call it before anything else.
func Child(known ...subjects.Variant) bool {
	text := os.Getenv(childVar)
	if text == "" {
		return false
	}
	if err := serve(text, known, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// serve is the child's side.
func serve(text string, known []subjects.Variant, in io.Reader, out io.Writer) error {
	var b birth
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return fmt.Errorf("contender: %s: %w", childVar, err)
	}
	say := speaker(out)
	log, err := os.OpenFile(b.Log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return say(reply{Error: wired(err)})
	}
	defer log.Close()
	c, err := open(b.Setup, known, history.NewRecorder(log))
	if err != nil {
		return say(reply{Error: wired(err)})
	}
	if err := say(reply{}); err != nil {
		return err
	}

	var mu sync.Mutex
	under := map[uint64]context.CancelFunc{} // way
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m command
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return fmt.Errorf("contender: a command: %w", err)
		}
		mu.Lock()
		if m.Do == doGiveUp {
			if cancel := under[m.ID]; cancel != nil {
				cancel()
			}
			mu.Unlock()
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		under[m.ID] = cancel
		mu.Unlock()
		go func() {
			var r reply
			var err error
			if m.Do == doClose {
				err = c.close()
			} else {
				r, err = c.do(ctx, m)
			}
			mu.Lock()
			delete(under, m.ID)
			mu.Unlock()
			cancel()
			r.ID, r.Error = m.ID, wired(err)
			say(r) // if nobody hears it, the parent is gone, and so are we soon
		}()
	}
	return lines.Err()
}

// speaker writes replies, each as one line in one piece.
func speaker(out io.Writer) func(reply) error {
	var mu sync.Mutex
	return func(r reply) error {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		_, err = fmt.Fprintf(out, "%s%s\n", mark, line)
		return err
	}
}

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
