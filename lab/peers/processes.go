package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/child"
)

// Each measurement is made by a process of its own, a child (see package child): so one
// contestant's heap, goroutines and connections are not another's, and one that hangs can be
// ended. The child says what step it has come to, and goes on when it is answered; its last
// message is its report.

// role is that of processes that measure.
const role = "peers"

// A job is what one child measures: one contestant in one scenario, once.
type job struct {
	Work string   // by name: see works
	Who  string   // the contestant
	URLs []string // of its servers

	N      int           // callers, waiters, names or locks
	TTL    time.Duration // of each lock
	Hold   time.Duration // of each lock
	Pause  time.Duration // between a release and the next acquire
	Write  int           // n: each acquisition is to write with the probability of 1 in n, else to read; 0: all are the same
	Only   int           // the first of the callers only write, the others only read; 0: see Write
	For    time.Duration // how long to measure; each turn, if there are such
	Turns  int           // see interleave
	Keys   string        // what the names of all locks begin with
	AsKeys bool          // names are the keys that our locks have for them: a peer then contends for our locks
	Rank   int           // among the processes that do the job together
	Grants string        // a file that these share, of one number: how many grants there were

	Program string `json:"-"` // which does it; empty: this one
}

// A report is what a child has measured.
type report struct {
	Values   map[string]float64   // by unit; finite
	Each     []map[string]float64 // the values of each turn
	Counts   []int                // how often each waiter got the lock
	Holds    []hold               // each hold, if it was to last
	Stuck    bool                 // the contestant did not come to an end, and had to be given up
	Requests int64                // sent, while it was measured
	Commands int64                // executed by the server in that time: the requests, and what scripts call
}

// A hold is from the grant to the call of the release, by the clock of the machine.
type hold struct{ From, To time.Duration }

// stepLimit is how long a child may take to come to its next step. Works that can hang in a
// contestant give it up earlier.
const stepLimit = time.Minute

// A message is what a child says: one of the two.
type message struct {
	Step   string
	Report *report
}

func spawn(j job) (*child.Process, error) {
	return child.Start(child.Config{Role: role, Job: j, Program: j.Program})
}

// next waits for what a child says: the name of a step, or its report.
func next(ctx context.Context, c *child.Process) (step string, r *report, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stepLimit, fmt.Errorf("its process has said nothing for %v", stepLimit))
	defer cancel()
	var m message
	err = c.Receive(ctx, &m)
	return m.Step, m.Report, err
}

// goOn answers a step. A child that has ended is noticed by next.
func goOn(c *child.Process) { c.Send(nil) }

// together runs jobs, each in a process of its own, which take all their steps together: at
// does what is to be done at a step.
func together(ctx context.Context, jobs []job, at func(step string) error) ([]report, error) {
	var children []*child.Process
	defer func() {
		for _, c := range children {
			c.Kill()
		}
	}()
	for _, j := range jobs {
		c, err := spawn(j)
		if err != nil {
			return nil, err
		}
		children = append(children, c)
	}
	reports := make([]report, len(jobs))
	for {
		var step string
		done := 0
		for i, c := range children {
			s, r, err := next(ctx, c)
			if err != nil {
				return nil, err
			}
			if step = s; r != nil {
				reports[i] = *r
				done++
			}
		}
		switch done {
		case len(children):
			return reports, nil
		case 0:
		default:
			return nil, errors.New("one process reports while another does not")
		}
		if at != nil {
			if err := at(step); err != nil {
				return nil, err
			}
		}
		for _, c := range children {
			goOn(c)
		}
	}
}

// interleave runs jobs, each in a process of its own, of which only one is at work at any time:
// they come in turns, each round in an order drawn again, so that a burst of noise that lasts
// longer than a round meets them all. At the first step they are ready, and each later one,
// or the report, ends a turn.
func interleave(ctx context.Context, jobs []job, random *rand.Rand) ([]report, []error) {
	children, reports, errs := make([]*child.Process, len(jobs)), make([]report, len(jobs)), make([]error, len(jobs))
	var open []int // whose turn is to come
	for i, j := range jobs {
		if children[i], errs[i] = spawn(j); errs[i] != nil {
			continue
		}
		defer children[i].Kill()
		if _, _, errs[i] = next(ctx, children[i]); errs[i] == nil {
			open = append(open, i)
		}
	}
	for len(open) > 0 {
		random.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
		open = slices.DeleteFunc(open, func(i int) bool {
			goOn(children[i])
			_, r, err := next(ctx, children[i])
			if errs[i] = err; r != nil {
				reports[i] = *r
			}
			return r != nil || err != nil
		})
	}
	return reports, errs
}

// A seat is the child's side.
type seat struct {
	job
	requests atomic.Int64 // sent over all connections of the contestant
	admin    redis.Conn   // to the first server; not counted
	parent   *child.Parent
	said     int64 // commands sent by admin
}

// asChild makes this process a child, if it was started as one.
func asChild() bool {
	return child.Run(role, func(ctx context.Context, parent *child.Parent, j job) error {
		s := &seat{job: j, parent: parent}
		r, err := s.serve(ctx)
		if err != nil {
			return err
		}
		return parent.Send(message{Report: &r})
	})
}

func (s *seat) serve(ctx context.Context) (r report, err error) {
	work := works[s.Work]
	if work == nil {
		return report{}, fmt.Errorf("no work is called %q", s.Work)
	}
	if s.admin, err = redis.DialURL(s.URLs[0]); err != nil {
		return report{}, err
	}
	defer s.admin.Close()
	c, err := s.open(ctx)
	if err != nil {
		return report{}, err
	}
	return work(ctx, s, c)
}

// step says what has been come to and waits until the parent has done its part.
func (s *seat) step(name string) {
	if err := s.parent.Ask(message{Step: name}); err != nil {
		os.Exit(1) // the parent is gone
	}
}

func (s *seat) open(ctx context.Context) (*client, error) {
	for _, c := range contestants {
		if c.name == s.Who {
			return c.open(ctx, s)
		}
	}
	return nil, fmt.Errorf("no contestant is called %q", s.Who)
}
