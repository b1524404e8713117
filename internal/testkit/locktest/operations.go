package locktest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// On makes a protocol on a node. Its methods are the protocol's operations, as a [Talk] does them.
type On func(driver.Node) driver.Protocol

// Doing is an operation on a node: what it returns.
type Doing = func(driver.Node) (any, error)

func (on On) Acquire(ctx context.Context, c driver.Claim) Doing {
	return func(n driver.Node) (any, error) { return on(n).Acquire(ctx, c) }
}

func (on On) Extend(ctx context.Context, c driver.Claim) Doing {
	return func(n driver.Node) (any, error) { return on(n).Extend(ctx, c) }
}

func (on On) Release(ctx context.Context, c driver.Claim) Doing {
	return func(n driver.Node) (any, error) { return nil, Err(on(n).Release(ctx, c)) }
}

func (on On) Undo(ctx context.Context, c driver.Claim) Doing {
	return func(n driver.Node) (any, error) { return nil, on(n).Undo(ctx, c) }
}

func (on On) ForceRelease(ctx context.Context, c driver.Claim) Doing {
	return func(n driver.Node) (any, error) { return nil, Err(on(n).ForceRelease(ctx, c)) }
}

func (on On) Adopt(ctx context.Context, c driver.Claim, from string) Doing {
	return func(n driver.Node) (any, error) { return on(n).Adopt(ctx, c, from) }
}

func (on On) Inspect(ctx context.Context, c driver.Claim) Doing {
	return func(n driver.Node) (any, error) { return on(n).Inspect(ctx, c) }
}

// Pass is that of a [driver.Queuer].
func (on On) Pass(ctx context.Context, c, next driver.Claim) Doing {
	return func(n driver.Node) (any, error) { return on(n).(driver.Queuer).Pass(ctx, c, next) }
}

// operations are those that the protocol has, by name.
func (on On) operations(ctx context.Context, c driver.Claim) map[string]Doing {
	all := map[string]Doing{
		"Acquire": on.Acquire(ctx, c), "Extend": on.Extend(ctx, c), "Release": on.Release(ctx, c), "Undo": on.Undo(ctx, c),
		"ForceRelease": on.ForceRelease(ctx, c), "Adopt": on.Adopt(ctx, c, "from"), "Inspect": on.Inspect(ctx, c),
	}
	if _, ok := on(&Dialog{}).(driver.Queuer); ok {
		all["Pass"] = on.Pass(ctx, c, c)
	}
	return all
}

// Garbage fails the test unless each operation answers ErrUnknown to what no script of its own replies: nobody knows
// whether the lock is held or lost. replies are such, by operation, besides those that no script at all makes.
func Garbage(t *testing.T, on On, c driver.Claim, replies map[string][]any) {
	t.Helper()
	all := on.operations(t.Context(), c)
	for what, own := range replies {
		for _, reply := range slices.Concat(own, []any{int64(-1), []any{}, "text"}) {
			_, err := all[what](OneReply{Reply: reply})
			if !errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrHeld) || errors.Is(err, strategy.ErrLost) {
				t.Errorf("%s() on %#v = %v, want ErrUnknown", what, reply, err)
			}
		}
	}
}

// ProvesRights fails the test unless acquires of a lock have the user's rights proven until one has succeeded, and again after a
// release that failed. These are the requests: an acquire that has them proven, another, and a release.
func ProvesRights(t *testing.T, on On, proves, acquires, releases string) {
	t.Helper()
	held := []any{[]byte("other"), int64(1000)}
	n, c := &Dialog{Replies: []any{held, int64(7), int64(7), errBroken, int64(7)}}, AClaim()
	p := on(n)
	acquire := func() error { return Err(p.Acquire(t.Context(), c)) }
	release := func() error { return Err(p.Release(t.Context(), c)) }
	for i, ask := range []func() error{acquire, acquire, acquire, release, acquire} {
		if err := ask(); (err != nil) != (i == 0 || i == 3) {
			t.Errorf("request %d = %v, want that the first acquire and the release fail", i, err)
		}
	}
	if want := []string{proves, proves, acquires, releases, proves}; !slices.Equal(n.Asked, want) {
		t.Errorf("asked %q, want %q", n.Asked, want)
	}
}

// Heard is what a claim hears by a message on a channel, on which the protocol must listen for it.
func Heard(t *testing.T, on On, c driver.Claim, channel, message string) (heard driver.Notification) {
	t.Helper()
	s := speaker{heard: map[string]func([]byte, error){}}
	if _, err := on(s).(driver.Notifier).Watch(t.Context(), c, func(n driver.Notification) { heard = n }); err != nil {
		t.Fatal(err)
	}
	hear := s.heard[channel]
	if hear == nil {
		t.Fatalf("Watch() does not listen on %q, but on %v", channel, s.heard)
	}
	hear([]byte(message), nil)
	return heard
}

// speaker is a node whose subscribers hear what it says.
type speaker struct {
	OneReply
	heard map[string]func([]byte, error) // by channel
}

func (s speaker) Subscribe(_ context.Context, channel string, fn func([]byte, error)) (func(), error) {
	s.heard[channel] = fn
	return func() {}, nil
}

// RenewsTogether fails the test unless ExtendAll renews that many locks in one request.
func RenewsTogether(t *testing.T, on On, most int) {
	t.Helper()
	claims := make([]driver.Claim, most+1)
	for i := range claims {
		claims[i] = AClaim()
	}
	var n renewals
	answers := 0
	var mu sync.Mutex
	on(&n).(driver.BulkExtender).ExtendAll(t.Context(), claims, func(_ int, _ driver.Grant, err error) {
		mu.Lock()
		defer mu.Unlock()
		if answers++; err != nil {
			t.Errorf("ExtendAll() = %v, want nil", err)
		}
	})
	slices.Sort(n.locks)
	if !slices.Equal(n.locks, []int{1, most}) || answers != len(claims) {
		t.Errorf("ExtendAll() of %d locks renews %d in a request, with %d answers, want %d at most, and an answer for each", len(claims), n.locks, answers, most)
	}
}

// renewals is a node that renews all locks of a request, and notes how many.
type renewals struct {
	OneReply
	mu    sync.Mutex
	locks []int
}

func (n *renewals) Eval(_ context.Context, _ time.Time, _ *driver.Script, keys []string, _ ...any) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.locks = append(n.locks, len(keys))
	return int64(len(keys)), nil
}
