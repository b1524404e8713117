package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Each measurement is made by a process of its own, this program again: so one contestant's
// heap, goroutines and connections are not another's, and one that hangs can be ended. Parent
// and child speak lines: the child says what step it has come to, and goes on when it is
// answered; its last line is its report.

// jobVar tells a process that it is a child, and what it is to measure.
const jobVar = "LOCKS_PEERS_JOB"

// A job is what one child measures: one contestant in one scenario, once.
type job struct {
	Work string   // by name: see works
	Who  string   // the contestant
	URLs []string // of its servers

	N      int           // callers, waiters, names or locks
	TTL    time.Duration // of each lock
	Hold   time.Duration // of each lock
	For    time.Duration // how long to measure; each turn, if there are such
	Turns  int           // see inTurns
	Keys   string        // what the names of all locks begin with
	Rank   int           // among the processes that do the job together
	Grants string        // a file that these share, of one number: how many grants there were
	Trace  string        // the file for a profile of its CPU; empty: none
}

// A report is what a child has measured.
type report struct {
	Values   map[string]float64   // by unit; finite
	Each     []map[string]float64 // the values of each turn
	Counts   []int                // how often each waiter got the lock
	Holds    []hold               // each hold, if it was to last
	Stuck    bool                 // the contestant did not come to an end, and had to be given up
	Error    string               // why there is nothing else
	Requests int64                // sent, while it was measured
	Commands int64                // executed by the server in that time: the requests, and what scripts call
}

// A hold is from the grant to the call of the release, by the clock of the machine.
type hold struct{ From, To time.Duration }

// stepLimit is how long a child may take to come to its next step. Works that can hang in a
// contestant give it up earlier.
const stepLimit = time.Minute

const (
	stepMark   = "peers step: "
	reportMark = "peers report: "
)

// A child is the parent's side.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // what it says; closed at its end
	quit  chan struct{}
	errs  strings.Builder // written before lines is closed
}

func spawn(j job) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(program), lines: make(chan string), quit: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), jobVar+"="+string(text))
	c.cmd.Stderr = &c.errs
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.lines)
		in := bufio.NewReader(stdout)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				c.cmd.Wait() // how it ended is told by what it did not say
				return
			}
			select {
			case c.lines <- strings.TrimSuffix(line, "\n"):
			case <-c.quit:
			}
		}
	}()
	return c, nil
}

// next waits for what the child says: the name of a step, or its report.
func (c *child) next(ctx context.Context) (step string, r *report, err error) {
	timer := time.NewTimer(stepLimit)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				return "", nil, fmt.Errorf("its process ended: %s", strings.TrimSpace(c.errs.String()))
			}
			if step, ok := strings.CutPrefix(line, stepMark); ok {
				return step, nil, nil
			}
			if text, ok := strings.CutPrefix(line, reportMark); ok {
				r := &report{}
				if err := json.Unmarshal([]byte(text), r); err != nil {
					return "", nil, err
				}
				if r.Error != "" {
					err = errors.New(r.Error)
				}
				return "", r, err
			}
		case <-timer.C:
			return "", nil, fmt.Errorf("its process has said nothing for %v", stepLimit)
		case <-ctx.Done():
			return "", nil, context.Cause(ctx)
		}
	}
}

// goOn answers a step. A child that has ended is noticed by next.
func (c *child) goOn() { io.WriteString(c.stdin, "\n") }

// end ends the process and waits for that.
func (c *child) end() {
	close(c.quit)
	c.cmd.Process.Kill() // an error says that it has ended
	for range c.lines {
	}
}

// together runs jobs, each in a process of its own, which take all their steps together: at
// does what is to be done at a step.
func together(ctx context.Context, jobs []job, at func(step string) error) ([]report, error) {
	var children []*child
	defer func() {
		for _, c := range children {
			c.end()
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
			s, r, err := c.next(ctx)
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
			c.goOn()
		}
	}
}

// inTurns runs jobs, each in a process of its own, of which only one is at work at any time:
// they come in turns, each round in an order drawn anew, so that a burst of noise that lasts
// longer than a round meets them all. At the first step they are ready, and each later one,
// or the report, ends a turn.
func inTurns(ctx context.Context, jobs []job, random *rand.Rand) ([]report, []error) {
	children, reports, errs := make([]*child, len(jobs)), make([]report, len(jobs)), make([]error, len(jobs))
	var open []int // whose turn is to come
	for i, j := range jobs {
		if children[i], errs[i] = spawn(j); errs[i] != nil {
			continue
		}
		defer children[i].end()
		if _, _, errs[i] = children[i].next(ctx); errs[i] == nil {
			open = append(open, i)
		}
	}
	for len(open) > 0 {
		random.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
		open = slices.DeleteFunc(open, func(i int) bool {
			children[i].goOn()
			_, r, err := children[i].next(ctx)
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
	answers  <-chan string
	said     int64 // commands sent by admin
}

// asChild makes this process a child, if it was started as one.
func asChild() bool {
	text := os.Getenv(jobVar)
	if text == "" {
		return false
	}
	answers := make(chan string)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			answers <- in.Text()
		}
		os.Exit(1) // the parent is gone
	}()
	s := &seat{answers: answers}
	r, err := s.serve(text)
	if err != nil {
		r = report{Error: err.Error()}
	}
	out, err := json.Marshal(r)
	if err != nil {
		out, _ = json.Marshal(report{Error: err.Error()})
	}
	fmt.Printf("%s%s\n", reportMark, out)
	return true
}

func (s *seat) serve(text string) (r report, err error) {
	if err := json.Unmarshal([]byte(text), &s.job); err != nil {
		return report{}, err
	}
	work := works[s.Work]
	if work == nil {
		return report{}, fmt.Errorf("no work is called %q", s.Work)
	}
	if s.admin, err = redis.DialURL(s.URLs[0]); err != nil {
		return report{}, err
	}
	defer s.admin.Close()
	stop, err := s.profile()
	if err != nil {
		return report{}, err
	}
	defer stop()
	return work(context.Background(), s)
}

// step says what has been come to and waits until the parent has done its part.
func (s *seat) step(name string) {
	fmt.Printf("%s%s\n", stepMark, name)
	<-s.answers
}

// open opens the contestant.
func (s *seat) open(ctx context.Context) (client, error) {
	for _, c := range contestants {
		if c.name == s.Who {
			return c.open(ctx, s)
		}
	}
	return nil, fmt.Errorf("no contestant is called %q", s.Who)
}
