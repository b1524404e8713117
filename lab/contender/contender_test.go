package contender_test

// Contenders in processes of their own: each command, each history, each end.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) {
	if contender.Child(append(subjects.All(), spoilt()...)...) {
		os.Exit(int(exitCode.Load()))
	}
	redistest.Main(m)
}

// exitCode is what a child ends with: as under the race detector, when there was one.
var exitCode atomic.Int64

// spoilt are variants of this test's own: those of which a child dies.
func spoilt() []subjects.Variant {
	variant := func(name string, on func(driver.Node) driver.Protocol) subjects.Variant {
		return subjects.Variant{Name: name, Servers: 1, On: func(nodes []driver.Node) driver.Protocol { return on(nodes[0]) }}
	}
	return []subjects.Variant{
		variant("panics", func(n driver.Node) driver.Protocol { return panics{luascript.On(n)} }),
		variant("ends badly", func(n driver.Node) driver.Protocol { return endsBadly{luascript.On(n)} }),
	}
}

type panics struct{ driver.Protocol }

func (panics) Acquire(context.Context, driver.Claim) (driver.Grant, error) { panic("planted") }

type endsBadly struct{ driver.Protocol }

func (endsBadly) Close() error {
	exitCode.Store(66)
	return &strategy.ServerError{Kind: strategy.ErrUnknown, Err: errors.New("planted")}
}

// limit is for what takes milliseconds on an idle machine.
const limit = time.Minute

// A scene is a lock that no other test has, nor this one when it is run again, and a store.
type scene struct {
	*testing.T
	ctx   context.Context
	lock  string
	store *contender.Store
}

var scenes atomic.Int64

func newScene(t *testing.T) *scene {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	s, err := contender.OpenStore()
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	return &scene{t, ctx, fmt.Sprintf("%s %d %d", t.Name(), os.Getpid(), scenes.Add(1)), s}
}

// setup is for a lock that nothing but a test's own doing ends.
func (s *scene) setup(name, variant string) contender.Setup {
	s.Helper()
	return contender.Setup{
		Name: name, Variant: variant, Addrs: []string{redistest.Shared(s).Addr()}, Store: s.store.Addr(),
		TTL: time.Minute, OpTimeout: 20 * time.Second,
	}
}

func (s *scene) start(name string) *contender.Contender {
	s.Helper()
	c, err := contender.Start(s.ctx, s.setup(name, "luascript"))
	check(s, err)
	s.Cleanup(func() {
		if err := c.Close(); err != nil {
			s.Error(err)
		}
	})
	return c
}

func (s *scene) acquire(c *contender.Contender) *contender.Hold {
	s.Helper()
	h, err := c.Acquire(s.ctx, contender.Bid{Lock: s.lock})
	check(s, err)
	return h
}

func (s *scene) ops(c *contender.Contender) []history.Op {
	s.Helper()
	ops, err := c.Ops()
	check(s, err)
	return ops
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestSteps: each command does what the contract says of it, is in the history, and its
// error is the contract's.
func TestSteps(t *testing.T) {
	s := newScene(t)
	a, b := s.start("A"), s.start("B")
	h := s.acquire(a)
	_, err := b.Acquire(s.ctx, contender.Bid{Lock: s.lock, Try: true})
	if !errors.Is(err, strategy.ErrHeld) || errors.Is(err, strategy.ErrLost) {
		t.Errorf("B asks while A holds: %v, want ErrHeld", err)
	}
	late := "acquire held"
	if _, err := b.Acquire(s.ctx, contender.Bid{Lock: s.lock, Wait: 10 * time.Millisecond}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("B waits for 10ms while A holds: %v, want that the time is over", err)
	} else if !errors.Is(err, strategy.ErrHeld) { // on a busy machine 10ms end before the server is asked, or answers
		late = "acquire " + string(history.ResultOf(err))
	}
	check(t, h.Write(s.ctx, "A was here"))
	check(t, h.Release(s.ctx))
	if err := h.Release(s.ctx); err == nil {
		t.Error("a second release says nothing, want an error")
	}
	h = s.acquire(b)
	if v, err := h.Read(s.ctx); v != "A was here" || err != nil {
		t.Errorf("B reads %q, %v, want what A wrote", v, err)
	}
	check(t, h.Release(s.ctx))

	for c, want := range map[*contender.Contender][]string{
		a: {"acquire ok", "write ok", "release ok"},
		b: {"acquire held", late, "acquire ok", "read ok", "release ok"},
	} {
		var got []string
		for _, op := range s.ops(c) {
			got = append(got, fmt.Sprintf("%s %s", op.Kind, op.Result))
			if err := op.Check(); err != nil || op.Client != c.Name() || op.Key != s.lock {
				t.Errorf("%+v: %v, want client %s and key %q", op, err, c.Name(), s.lock)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("history of %s:\n%q, want\n%q", c.Name(), got, want)
		}
	}
}

// TestHangingHindersNobody: while one command waits, others are obeyed; and its caller leaves with its ctx.
func TestHangingHindersNobody(t *testing.T) {
	s := newScene(t)
	c := s.start("A")
	h := s.acquire(c)
	waiting, leave := context.WithCancel(s.ctx)
	defer leave()
	done := make(chan error)
	go func() {
		_, err := c.Acquire(waiting, contender.Bid{Lock: s.lock})
		done <- err
	}()
	check(t, h.Write(s.ctx, "meanwhile"))
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("an acquire whose ctx ends: %v, want context.Canceled", err)
	}
	check(t, h.Release(s.ctx))
}

// TestKill: what a killed process was doing is in its history, as unknown.
func TestKill(t *testing.T) {
	s := newScene(t)
	a, b := s.start("A"), s.start("B")
	h := s.acquire(a)
	done := make(chan error)
	go func() {
		_, err := b.Acquire(s.ctx, contender.Bid{Lock: s.lock})
		done <- err
	}()
	verdict.Eventually(t, "B's acquire in its history", func() bool { return len(s.ops(b)) > 0 })
	check(t, b.Kill())
	if err := <-done; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the acquire of a killed process: %v, want that it has ended", err)
	}
	check(t, b.Kill())
	ops := s.ops(b)
	if len(ops) != 1 || ops[0].Result != history.Unknown || ops[0].End != history.Forever {
		t.Errorf("history of the killed: %+v, want an acquire of unknown end", ops)
	}
	check(t, b.Close())
	if again := s.ops(b); !slices.Equal(again, ops) {
		t.Errorf("after Close: %+v, want %+v", again, ops)
	}
	if _, err := b.Acquire(s.ctx, contender.Bid{Lock: s.lock}); err == nil {
		t.Error("a killed contender obeys, want an error")
	}
	check(t, h.Release(s.ctx))
}

// TestEndsByItself: a process that has ended by itself was not killed, though somebody kills it
// then, and no error of its own hides it.
func TestEndsByItself(t *testing.T) {
	s := newScene(t)
	c, err := contender.Start(s.ctx, s.setup("A", "panics"))
	check(t, err)
	if _, err := c.Acquire(s.ctx, contender.Bid{Lock: s.lock}); !errors.Is(err, contender.ErrEnded) {
		t.Errorf("what panics: %v, want ErrEnded", err)
	}
	for i, end := range []func() error{c.Kill, c.Kill, c.Close} {
		if err := end(); !errors.Is(err, contender.ErrEnded) || !strings.Contains(err.Error(), "panic: planted") {
			t.Errorf("the end %d of it: %v, want ErrEnded, and the panic", i+1, err)
		}
	}
	c, err = contender.Start(s.ctx, s.setup("A", "ends badly"))
	check(t, err)
	if err := c.Close(); !errors.Is(err, strategy.ErrUnknown) || !errors.Is(err, contender.ErrEnded) || !strings.Contains(err.Error(), "exit status 66") {
		t.Errorf("Close: %v, want ErrUnknown, as it says, and ErrEnded with its status", err)
	}
}

// TestBadSetups: the error says what is allowed.
func TestBadSetups(t *testing.T) {
	for name, spoil := range map[string]func(*contender.Setup){
		"name":    func(s *contender.Setup) { s.Name = "" },
		"variant": func(s *contender.Setup) { s.Variant = "no such" },
		"servers": func(s *contender.Setup) { s.Addrs = append(s.Addrs, s.Addrs...) },
		"options": func(s *contender.Setup) { s.TTL = time.Microsecond },
	} {
		s := newScene(t)
		setup := s.setup("A", "luascript")
		spoil(&setup)
		c, err := contender.Start(s.ctx, setup)
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "allowed") {
			t.Errorf("a bad %s: %v, want an error that says what is allowed", name, err)
		}
	}
}
