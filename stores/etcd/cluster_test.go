// Tests three members of which the leader dies, or stops, while locks are held and waited for; and servers that refuse.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstrategies/locks/internal/testkit/storetest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// patient is for locks that outlive an election.
var patient = strategy.Options{TTL: 30 * time.Second, OpTimeout: 2 * time.Second, RetryOnError: true}

func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	leaderLeaves(t, (*storetest.Server).Kill)
}

// TestLeaderStopped: its connections stay open, and it does not answer.
func TestLeaderStopped(t *testing.T) {
	t.Parallel()
	leaderLeaves(t, (*storetest.Server).Freeze)
}

// leaderLeaves: the holder keeps its lock, or learns of its loss first, and the waiters get it in their order.
func leaderLeaves(t *testing.T, leave func(*storetest.Server, context.Context) error) {
	members, endpoints := startCluster(t, 3)
	var all []strategy.Strategy
	for range 3 {
		s, err := open(patient, endpoints)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		all = append(all, s)
	}
	held, err := all[0].NewLock("x").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := held.KeepAlive(0); err != nil {
		t.Fatal(err)
	}
	first, _ := held.Fence()
	type served struct {
		who   int
		lease strategy.Lease
		err   error
	}
	turns := make(chan served, 2)
	for i := 1; i < 3; i++ {
		go func() {
			lease, err := all[i].NewLock("x").Acquire(t.Context())
			turns <- served{i, lease, err}
		}()
		verdict.Eventually(t, "the waiter queues", func() bool {
			info, err := all[i].Inspect(t.Context(), "x")
			return err == nil && len(info.Queue) == i
		})
	}

	if err := leave(leader(t, members), t.Context()); err != nil {
		t.Fatal(err)
	}
	verdict.Eventually(t, "the holder's lock is renewed by the other members", func() bool {
		if err := held.Err(); err != nil {
			t.Fatalf("Err() = %v, want nil: two members serve", err)
		}
		return held.Extend(t.Context()) == nil
	})
	select {
	case got := <-turns:
		t.Fatalf("waiter %d has the lock (%v), want that it waits: it is held", got.who, got.err)
	default:
	}
	if err := held.Release(t.Context()); err != nil {
		t.Logf("Release() = %v: the engine repeats it", err)
	}
	for i, last := 1, first; i < 3; i++ {
		select {
		case got := <-turns:
			if got.err != nil {
				t.Fatalf("waiter %d: %v", got.who, got.err)
			}
			fence, _ := got.lease.Fence()
			if fence <= last {
				t.Errorf("waiter %d has the fence %d, want more than %d", got.who, fence, last)
			}
			last = fence
			if err := got.lease.Release(t.Context()); err != nil {
				t.Logf("Release() = %v: the engine repeats it", err)
			}
		case <-time.After(4 * patient.TTL): // a waiter that hears nothing asks when the holder's TTL ends, the second one TTL later
			t.Fatal("the waiters have no lock after four TTLs")
		}
	}
}

// TestMinority: a member that is left alone grants nothing, and a holder's lock ends for it at its deadline.
func TestMinority(t *testing.T) {
	t.Parallel()
	members, endpoints := startCluster(t, 3)
	o := strategy.Options{TTL: 6 * time.Second, OpTimeout: time.Second}
	s, err := open(o, endpoints)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	held, err := s.NewLock("x").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := held.KeepAlive(0); err != nil {
		t.Fatal(err)
	}
	for _, m := range members[1:] {
		if err := m.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if lease, err := s.NewLock("y").TryAcquire(t.Context()); err == nil {
		t.Errorf("TryAcquire() = nil for %v, want an error: one of three members answers", time.Until(lease.Deadline()))
	} else if errors.Is(err, strategy.ErrHeld) || errors.Is(err, strategy.ErrLost) {
		t.Errorf("TryAcquire() = %v, want an error that claims nothing", err)
	}
	select {
	case <-held.Lost():
	case <-time.After(time.Minute):
		t.Fatal("Lost() is not closed after a minute, want closed at the deadline")
	}
	if now := time.Now(); now.Before(held.Deadline()) {
		t.Errorf("Lost() is closed %v before the deadline: %v", held.Deadline().Sub(now), held.Err())
	}
	if err := s.Check(t.Context()); err == nil {
		t.Error("Check() = nil, want an error: most members do not answer")
	}
	for _, m := range members[1:] {
		if err := m.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	verdict.Eventually(t, "the lock is free again", func() bool {
		lease, err := s.NewLock("x").TryAcquire(t.Context())
		return err == nil && lease.Release(t.Context()) == nil
	})
	verdict.Eventually(t, "Check finds nothing wrong", func() bool { return s.Check(t.Context()) == nil })
}

// TestRefusals: what a server refuses says so, and what one can do about it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	_, endpoints := startCluster(t, 1, "--quota-backend-bytes", fmt.Sprint(4<<20))
	root := clientOf(t, endpoints)
	s := strategyOf(t, root, patient)
	ctx := t.Context()
	held, err := s.NewLock("held").Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; err == nil; i++ {
		_, err = root.Put(ctx, fmt.Sprint("fill ", i), strings.Repeat("x", 1<<20))
	}
	refused := func(what string, err error, words ...string) {
		t.Helper()
		if !errors.Is(err, strategy.ErrRefused) {
			t.Errorf("%s = %v, want ErrRefused", what, err)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s = %v, want %q in it", what, err, w)
			}
		}
	}
	_, err = s.NewLock("other").TryAcquire(ctx)
	refused("TryAcquire() of a full server", err, "space exceeded", "alarm NOSPACE")
	refused("Check() of a full server", s.Check(ctx), "NOSPACE")
	if err := held.Extend(ctx); err != nil {
		t.Errorf("Extend() = %v, want nil: a renewal needs no space", err)
	}
	if err := held.Release(ctx); err != nil {
		t.Errorf("Release() = %v, want nil: a release needs no space", err)
	}
}

// TestRights: a user without rights is refused before anything is written.
func TestRights(t *testing.T) {
	t.Parallel()
	_, endpoints := startCluster(t, 1)
	root := clientOf(t, endpoints)
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(root.UserAdd(ctx, "root", "secret-root"))
	must(root.UserGrantRole(ctx, "root", "root"))
	for role, keys := range map[string]string{"locker": "lock:{", "stranger": "other"} {
		must(root.RoleAdd(ctx, role))
		must(root.RoleGrantPermission(ctx, role, keys, clientv3.GetPrefixRangeEnd(keys), clientv3.PermissionType(clientv3.PermReadWrite)))
		must(root.UserAdd(ctx, role, "secret-"+role))
		must(root.UserGrantRole(ctx, role, role))
	}
	must(root.AuthEnable(ctx))
	as := func(user string) strategy.Strategy {
		c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Username: user, Password: "secret-" + user, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return strategyOf(t, c, patient)
	}
	locker, stranger, nobody := as("locker"), as("stranger"), strategyOf(t, root, patient)
	if err := locker.Check(ctx); err != nil {
		t.Errorf("Check() of a user with all rights = %v, want nil", err)
	}
	held, err := locker.NewLock("x").TryAcquire(ctx)
	if err != nil {
		t.Fatalf("TryAcquire() of a user with all rights = %v, want nil", err)
	}
	once := patient
	once.RetryOnError = false
	done := queues(t, as("locker"), "x", 1)
	for who, s := range map[string]strategy.Strategy{"a stranger": stranger, "nobody": nobody} {
		for what, err := range map[string]error{
			"Check":      s.Check(ctx),
			"TryAcquire": second(s.NewLock("x").TryAcquire(ctx)),
			"Inspect":    second(s.Inspect(ctx, "x")),
		} {
			if !errors.Is(err, strategy.ErrRefused) || errors.Is(err, strategy.ErrHeld) {
				t.Errorf("%s of %s = %v, want ErrRefused", what, who, err)
			} else if !strings.Contains(err.Error(), "user") || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s of %s = %v, want what the user needs, and no password", what, who, err)
			}
		}
	}
	if err := held.Extend(ctx); err != nil {
		t.Errorf("Extend() = %v, want nil", err)
	}
	if err := held.Release(ctx); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
	wait(t, "the waiter has the lock", done)
}

func second[T any](_ T, err error) error { return err }

// TestCheck: a server that is not there, and a TTL that etcd does not count.
func TestCheck(t *testing.T) {
	t.Parallel()
	_, one := startCluster(t, 1, "--heartbeat-interval", "100", "--election-timeout", "3000")
	ctx := t.Context()
	if err := strategyOf(t, clientOf(t, one), strategy.Options{}).Check(ctx); err != nil {
		t.Errorf("Check() = %v, want nil", err)
	}
	err := strategyOf(t, clientOf(t, one), strategy.Options{TTL: time.Second}).Check(ctx)
	if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "the minimum TTL is 5s") {
		t.Errorf("Check() with a TTL of 1s = %v, want that the minimum is 5s", err)
	}
	lease, err := strategyOf(t, clientOf(t, one), strategy.Options{TTL: time.Second}).NewLock("x").TryAcquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(lease.Deadline()); left < time.Second || left > 5*time.Second {
		t.Errorf("Deadline() is in %v, want what etcd counts, 5s", left)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	err = strategyOf(t, clientOf(t, append(one, "127.0.0.1:1")), strategy.Options{}).Check(ctx)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("Check() with an endpoint that does not answer = %v, want its name", err)
	}
}
