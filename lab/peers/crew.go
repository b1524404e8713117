package main

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// A crew is callers who have to be woken, without a lock: no caller has a context or a time-out, and
// no caller leaves. They share a connection. A caller who comes while no other sends yields. Then it
// sends for all callers who have come by then, and repeats that while more have come. A goroutine
// reads the replies and wakes the callers.
type crew struct {
	*raw
	members map[string]*member
	joined  int // how many share a request at most

	mu      sync.Mutex
	sending bool
	queue   []*errand
	flight  [][]*errand // requests that wait for their reply, each with its callers
	broken  error       // why no reply will come any more

	args   []any // the sender's, reused, as are evals
	evals  []*eval
	reader sync.WaitGroup
}

// A member is the caller who acquires and releases one name.
type member struct {
	c        *crew
	in, back *errand
}

// An errand is what one member asks again and again.
type errand struct {
	request
	eval    eval // where several may share a request
	release bool
	done    chan error
}

func (m *member) acquire(context.Context) (held, error) { return m, m.c.do(m.in) }
func (m *member) Release(context.Context) error         { return m.c.do(m.back) }

func (c *crew) mutex(name string) mutex { return c.members[name] }

func (c *crew) do(e *errand) error {
	c.mu.Lock()
	if err := c.broken; err != nil {
		c.mu.Unlock()
		return err
	}
	c.queue = append(c.queue, e)
	if c.sending {
		c.mu.Unlock()
		return <-e.done
	}
	c.sending = true
	for len(c.queue) > 0 {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
		batch := c.queue
		c.queue = make([]*errand, 0, cap(batch))
		c.send(batch)
	}
	c.sending = false
	c.mu.Unlock()
	return <-e.done
}

// send sends a batch. The caller holds mu, which is free while bytes are sent. It returns no error:
// the reader meets the same one.
func (c *crew) send(batch []*errand) {
	releases := make([]*errand, 0, len(batch))
	acquires := slices.DeleteFunc(batch, func(e *errand) bool {
		if e.release {
			releases = append(releases, e)
		}
		return e.release
	})
	first := len(c.flight)
	for _, all := range [][]*errand{acquires, releases} {
		c.flight = slices.AppendSeq(c.flight, slices.Chunk(all, c.joined))
	}
	requests := c.flight[first:]
	c.mu.Unlock()
	for _, together := range requests {
		c.conns[0].Send(together[0].cmd, c.argsOf(together)...)
	}
	c.conns[0].Flush()
	c.mu.Lock()
}

// argsOf are the arguments of one request for all.
func (c *crew) argsOf(together []*errand) []any {
	if len(together) == 1 {
		return together[0].args
	}
	c.evals = c.evals[:0]
	for _, e := range together {
		c.evals = append(c.evals, &e.eval)
	}
	c.args = jointArgs(c.args[:0], c.evals)
	return c.args
}

// read hands on replies until the connection ends.
func (c *crew) read() {
	for {
		reply, err := c.conns[0].Receive()
		if c.conns[0].Err() != nil {
			c.fail(err)
			return
		}
		c.mu.Lock()
		together := c.flight[0]
		c.flight = c.flight[1:]
		c.mu.Unlock()
		answers := []any{reply}
		if len(together) > 1 {
			answers, _ = reply.([]any)
		}
		for i, e := range together {
			switch {
			case err != nil:
				e.done <- err
			case len(answers) != len(together) || !e.good(answers[i]):
				e.done <- errNotThere
			default:
				e.done <- nil
			}
		}
	}
}

// fail ends the wait of all callers, now and later.
func (c *crew) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = err
	for _, e := range slices.Concat(append(c.flight, c.queue)...) {
		e.done <- err
	}
	c.flight, c.queue = nil, nil
}

func (c *crew) close() error {
	err := c.raw.close()
	c.reader.Wait()
	return err
}

// openCrew has callers send what fairqueue has sent, up to so many in a request; 0: raw's
// commands, one caller in each.
func openCrew(joined int) func(context.Context, *seat) (client, error) {
	return func(ctx context.Context, s *seat) (client, error) {
		var acquires, releases []eval
		if joined > 0 {
			var err error
			if acquires, releases, err = recorded(ctx, s); err != nil {
				return nil, err
			}
		}
		r, err := dialRaw(ctx, s, 1)
		if err != nil {
			return nil, err
		}
		c := &crew{raw: r, members: map[string]*member{}, joined: max(joined, 1)}
		for i := range s.N {
			t := r.turns(s.name(i))()
			a, b := &errand{request: t.acquire}, &errand{request: t.release, release: true}
			if joined > 0 {
				a.eval, b.eval = acquires[i], releases[i]
				a.request, b.request = joint(acquires[i:i+1], fenced), joint(releases[i:i+1], released)
			}
			a.done, b.done = make(chan error, 1), make(chan error, 1)
			c.members[s.name(i)] = &member{c, a, b}
		}
		c.reader.Go(c.read)
		return c, nil
	}
}
