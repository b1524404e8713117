package contender

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"github.com/lockstrategies/locks/internal/child"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/history"
)

// A contender in a process of its own is a child (see package child): it is sent commands and
// sends replies, in whatever order they come. The first reply, with the ID 0, says that the
// contender is open. The history goes to a file, line by line as things happen, where it outlives
// the child.

// role is that of contenders among children.
const role = "contender"

// A birth is what a child is to be.
type birth struct {
	Setup Setup
	Log   string // the file of its history
}

// ErrEnded says that a contender's process has ended.
var ErrEnded = child.ErrEnded

// startLimit is how long a process may take to come up on a loaded machine.
const startLimit = 60 * time.Second

// process is what a contender sits in.
type process struct {
	*child.Process
	who string
	log *os.File // of its history; its name is gone

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan reply // by the command's ID; closed when no reply will come
	over    error                 // how the process ended
	history []history.Op          // read before the log was closed; nil: it is not

	once   sync.Once // close
	closed error
}

// Start opens a contender in a process of its own: this program again, which calls
// [Child]. ctx bounds the start; the process ends with Kill or Close.
func Start(ctx context.Context, s Setup) (*Contender, error) {
	p, err := start(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("contender: starting %s: %w", s.Name, err)
	}
	return &Contender{s, p}, nil
}

func start(ctx context.Context, s Setup) (p *process, err error) {
	log, err := os.CreateTemp("", "locks-contender-*.jsonl")
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, os.Remove(log.Name())) // both have it open: so nothing is left of it, however they end
		if err != nil {
			log.Close()
		}
	}()
	c, err := child.Start(child.Config{Role: role, Job: birth{s, log.Name()}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("it has said nothing for %v", startLimit))
	defer cancel()
	if err := c.Receive(ctx, &reply{}); err != nil {
		c.Kill() // an error says no more than err
		return nil, err
	}
	p = &process{Process: c, who: s.Name, log: log, waiting: map[uint64]chan reply{}}
	go p.listen()
	return p, nil
}

// listen passes replies on until the process ends.
func (p *process) listen() {
	for {
		var r reply
		err := p.Receive(context.Background(), &r)
		p.mu.Lock()
		if err != nil {
			p.over = err
			for _, answer := range p.waiting {
				close(answer)
			}
			clear(p.waiting)
			p.mu.Unlock()
			return
		}
		if answer := p.waiting[r.ID]; answer != nil {
			delete(p.waiting, r.ID)
			answer <- r
		}
		p.mu.Unlock()
	}
}

// do sends a command and waits for its reply.
func (p *process) do(ctx context.Context, c command) (reply, error) {
	if ctx.Err() != nil {
		return reply{}, context.Cause(ctx)
	}
	answer := make(chan reply, 1)
	p.mu.Lock()
	if p.over != nil {
		p.mu.Unlock()
		return reply{}, fmt.Errorf("%s of %s: %w", c.Do, p.who, p.over)
	}
	p.last++
	c.ID = p.last
	p.waiting[c.ID] = answer
	p.mu.Unlock()
	if err := p.Send(c); err != nil {
		return reply{}, err
	}
	select {
	case r, ok := <-answer:
		switch {
		case !ok:
			return reply{}, fmt.Errorf("%s of %s: %w", c.Do, p.who, p.over)
		case r.Error != nil:
			return r, r.Error
		}
		return r, nil
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.waiting, c.ID)
		p.mu.Unlock()
		return reply{}, errors.Join(context.Cause(ctx), p.Send(command{ID: c.ID, Do: doGiveUp}))
	}
}

// named says whose error it is.
func (p *process) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("contender: %s: %w", p.who, err)
}

func (p *process) ops() ([]history.Op, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.history != nil {
		return p.history, nil
	}
	return history.Read(io.NewSectionReader(p.log, 0, math.MaxInt64))
}

// closeLimit is how long a process may take to close its strategy, when nothing is in its
// way but a loaded machine and servers that do not answer.
const closeLimit = 30 * time.Second

func (p *process) close() error {
	p.once.Do(func() { p.closed = p.doClose() })
	return p.closed
}

func (p *process) doClose() error {
	p.Resume() // an error says that it has ended
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeLimit, fmt.Errorf("closing it takes more than %v", closeLimit))
	defer cancel()
	_, err := p.do(ctx, command{Do: doClose})
	if errors.Is(err, ErrEnded) {
		err = nil // Close knows whether that was Kill's doing
	}
	if err = errors.Join(err, p.Close(closeLimit)); err != nil {
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
	return child.Run(role, func(_ context.Context, parent *child.Parent, b birth) error {
		return serve(parent, b, known)
	})
}

// serve is the child's side.
func serve(parent *child.Parent, b birth, known []subjects.Variant) error {
	log, err := os.OpenFile(b.Log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer log.Close()
	c, err := open(b.Setup, known, history.NewRecorder(log))
	if err != nil {
		return err
	}
	if err := parent.Send(reply{}); err != nil {
		return err
	}

	var mu sync.Mutex
	under := map[uint64]context.CancelFunc{} // way
	for {
		var m command
		if err := parent.Receive(&m); err != nil {
			return err
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
			parent.Send(r) // if nobody hears it, the parent is gone, and so are we soon
		}()
	}
}
