package main

// The floors that libraries are measured against: how many requests they send, and that they notice a lock that
// is taken away.

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/redlock"
)

// seated is a child's side in this process, of n callers of a contestant.
func seated(t *testing.T, who string, n int) *seat {
	b := embedded(t)
	s := &seat{job: job{Who: who, URLs: []string{b.one.URL()}, N: n, TTL: ttl, Keys: "floors"}}
	var err error
	if s.admin, err = redis.DialURL(s.URLs[0]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.admin.Close() })
	if err := locktest.OnNodes([]*redis.Pool{s.pool(s.URLs[0], 1)}, func(nodes []driver.Node) error { return redlock.Bootstrap(t.Context(), nodes) }); err != nil {
		t.Fatal(err)
	}
	return s
}

// both are a pair on a name of its own for each caller.
func (s *seat) both(t *testing.T, c client) error {
	var errs []error
	for i := range s.N {
		errs = append(errs, pair(t.Context(), c.mutex(s.name(i))))
	}
	return errors.Join(errs...)
}

// floors are those over the first server, and how many requests each takes for a pair on as
// many names.
var floors = []struct {
	name            string
	names, requests int
}{
	{"raw-fairqueue", 1, 2}, {"raw-fairqueue-unfenced", 3, 6}, {"raw-all-redlock", 2, 4}, {"raw-all-redlock-unguarded", 2, 4},
}

// TestFloors: they acquire and release again and again, with as many requests as they say; and
// one whose lock is another's, or is taken away, is no floor.
func TestFloors(t *testing.T) {
	for _, f := range floors {
		t.Run(fmt.Sprintf("%s/%d", f.name, f.names), func(t *testing.T) {
			s := seated(t, f.name, f.names)
			c, err := s.open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				before := s.requests.Load()
				if err := s.both(t, c); err != nil {
					t.Fatal(err)
				}
				if got := s.requests.Load() - before; got != int64(f.requests) {
					t.Errorf("%d requests, want %d", got, f.requests)
				}
			}
			key := "lock:{" + s.name(f.names-1) + "}"
			if n, err := redis.Int(s.admin.Do("EXISTS", key)); err != nil || n != 0 {
				t.Errorf("EXISTS %s = %d, %v after a release, want 0", key, n, err)
			}
			if _, err := s.admin.Do("SET", key, "another"); err != nil {
				t.Fatal(err)
			}
			if err := s.both(t, c); !errors.Is(err, errNotThere) {
				t.Errorf("a pair where another holds a lock: %v, want %v", err, errNotThere)
			}
			if err := c.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFloorsRelease: nor is one whose lock is lost before it is released.
func TestFloorsRelease(t *testing.T) {
	for _, who := range []string{"raw-fairqueue", "raw-fairqueue-unfenced", "raw-all-redlock"} {
		s := seated(t, who, 1)
		c, err := s.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h, err := c.mutex(s.name(0)).acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.admin.Do("DEL", "lock:{"+s.name(0)+"}"); err != nil {
			t.Fatal(err)
		}
		if err := h.Release(t.Context()); !errors.Is(err, errNotThere) {
			t.Errorf("%s: release of a lock that is gone: %v, want %v", who, err, errNotThere)
		}
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRecorded: what is replayed is what fairqueue goes on to send, by Acquire, too.
func TestRecorded(t *testing.T) {
	s := seated(t, "fairqueue", 2)
	acquires, releases, err := recorded(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	n := redigonode.New(s.pool(s.URLs[0], 1))
	r := &recorder{Node: n}
	st, err := fairqueue.New(r, ourOptions(s))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for i := range s.N {
		want := said(acquires[i], releases[i])
		for n := range 6 {
			r.evals = nil
			if err := pair(t.Context(), &ourMutex{st.NewLock(s.name(i))}); err != nil {
				t.Fatal(err)
			}
			if got := said(r.evals...); n > 2 && got != want {
				t.Errorf("pair %d on name %d is\n%s, want what is replayed:\n%s", n, i, got, want)
			}
		}
	}
}

// said is what calls are, without their token: the last argument of an acquire.
func said(calls ...eval) (text string) {
	token := calls[0].args[len(calls[0].args)-1]
	for _, c := range calls {
		args := slices.Clone(c.args)
		for i := range args {
			if args[i] == token {
				args[i] = "token"
			}
		}
		text += fmt.Sprintf("%s %q %q\n", c.script.Name(), c.keys, args)
	}
	return text
}
