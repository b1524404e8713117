// Tests what All and DoWithin do with leases of any make: which contexts they give and end, and that the loss of
// a part is seen by each call, also before the part's context ends. The rest of their tests is in engine.
package strategy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errWhy = errors.New("why")

// A fakeLock is free, if it makes a lease.
type fakeLock struct {
	Lock
	name  string
	lease func(ctx context.Context) (Lease, error)
	asked []context.Context
}

func (l *fakeLock) Name() string { return l.name }
func (l *fakeLock) Key() string  { return l.name }

func (l *fakeLock) Acquire(ctx context.Context) (Lease, error) {
	if l.asked = append(l.asked, ctx); len(l.asked) > 20 {
		panic("asked 20 times, want that somebody gives up")
	}
	return l.lease(ctx)
}

func (l *fakeLock) TryAcquire(ctx context.Context) (Lease, error) { return l.Acquire(ctx) }

// A fakeLease keeps what it is asked for, and tells its loss only when it is asked.
type fakeLease struct {
	Lease
	name           string
	end, renewal   error
	extends, keeps error // what these return
	asked          []string
}

func (l *fakeLease) note(what string) { l.asked = append(l.asked, what) }

func (l *fakeLease) Name() string                  { return l.name }
func (l *fakeLease) Token() string                 { return "token of " + l.name }
func (l *fakeLease) Err() error                    { return l.end }
func (l *fakeLease) RenewalErr() error             { return l.renewal }
func (l *fakeLease) Deadline() time.Time           { return time.Now().Add(10 * time.Second) }
func (l *fakeLease) StopKeepAlive()                { l.note("stop") }
func (l *fakeLease) Extend(context.Context) error  { l.note("extend"); return l.extends }
func (l *fakeLease) KeepAlive(time.Duration) error { l.note("keep"); return l.keeps }
func (l *fakeLease) Release(context.Context) error { l.note("release"); return nil }
func (l *fakeLease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(parent)
}

// abc is All of a, b and c with those leases, which are then asked for nothing yet.
func abc(t *testing.T) (whole *allLease, a, b, c *fakeLease) {
	t.Helper()
	var parts []*fakeLease
	var locks []Lock
	for _, name := range []string{"a", "b", "c"} {
		part := &fakeLease{name: name}
		parts = append(parts, part)
		locks = append(locks, &fakeLock{name: name, lease: func(context.Context) (Lease, error) { return part, nil }})
	}
	l, err := All(locks...)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range locks {
		if ctx := l.(*fakeLock).asked[0]; (ctx.Err() != nil) != (i > 0) {
			t.Errorf("the context of the wait for %s afterwards: %v, want all ended that All has made", l.Name(), ctx.Err())
		}
	}
	for _, part := range parts {
		if !slices.Equal(part.asked, []string{"keep", "stop"}) {
			t.Errorf("%s was asked to %q, want that it is kept until all are acquired", part.name, part.asked)
		}
		part.asked = nil
	}
	return lease.(*allLease), parts[0], parts[1], parts[2]
}

// A part that panics, in a Backoff of its user's, say, does not leave the parts before it held and renewed.
func TestAllPanics(t *testing.T) {
	t.Parallel()
	a := &fakeLease{name: "a"}
	l, err := All(
		&fakeLock{name: "a", lease: func(context.Context) (Lease, error) { return a, nil }},
		&fakeLock{name: "b", lease: func(context.Context) (Lease, error) { panic("b") }},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() != "b" || !slices.Equal(a.asked, []string{"keep", "release"}) {
			t.Errorf("after b's panic a was asked to %q, want that it is released", a.asked)
		}
	}()
	l.Acquire(t.Context())
}

// TestAllSeesALoss: each call finds that a part is lost, ends the whole with that, and asks nothing of the
// other parts but to end.
func TestAllSeesALoss(t *testing.T) {
	t.Parallel()
	for call, do := range map[string]func(l *allLease) error{
		"Err":       (*allLease).Err,
		"Extend":    func(l *allLease) error { return l.Extend(t.Context()) },
		"KeepAlive": func(l *allLease) error { return l.KeepAlive(0) },
		"Release":   func(l *allLease) error { return l.Release(t.Context()) },
		"Context":   func(l *allLease) error { ctx, _ := l.Context(t.Context()); return context.Cause(ctx) },
		"RenewalErr": func(l *allLease) error {
			if err := l.RenewalErr(); err != nil {
				t.Errorf("RenewalErr of a lost lease = %v, want nil", err)
			}
			return l.end
		},
	} {
		whole, a, b, _ := abc(t)
		a.renewal, b.end = errWhy, &LostError{Name: "b"}
		err := do(whole)
		if err == nil || err != whole.Err() || !errors.Is(err, ErrLost) {
			t.Errorf("%s after a loss = %v, want that of Err, %v", call, err, whole.Err())
		}
		select {
		case <-whole.Lost():
		default:
			t.Errorf("%s after a loss: Lost is open, want it closed", call)
		}
		want := []string{"stop"}
		if call == "Release" {
			want = append(want, "release")
		}
		if !slices.Equal(a.asked, want) {
			t.Errorf("%s after a loss asks the other part to %q, want %q", call, a.asked, want)
		}
	}
}

func TestAllContexts(t *testing.T) {
	t.Parallel()
	whole, _, _, _ := abc(t)
	ctx, cancel := whole.Context(t.Context())
	if cancel(); context.Cause(ctx) != context.Canceled || len(whole.contexts) > 0 {
		t.Errorf("cause of a cancelled context = %v, and %d are kept, want none", context.Cause(ctx), len(whole.contexts))
	}
	ctx, _ = whole.Context(t.Context())
	if err := whole.Release(t.Context()); err != nil || context.Cause(ctx) != ErrReleased {
		t.Errorf("Release = %v, cause of a context = %v, want nil, ErrReleased", err, context.Cause(ctx))
	}
	if ctx, _ = whole.Context(t.Context()); context.Cause(ctx) != ErrReleased {
		t.Errorf("cause of a context of a released lease = %v, want ErrReleased", context.Cause(ctx))
	}
}

// TestAllKeepAliveOrNone: if one part cannot be kept alive for as long, those before it are not either.
func TestAllKeepAliveOrNone(t *testing.T) {
	t.Parallel()
	whole, a, b, c := abc(t)
	c.keeps = errWhy
	if err := whole.KeepAlive(time.Minute); !errors.Is(err, errWhy) || !strings.Contains(err.Error(), `lock "c"`) {
		t.Errorf("KeepAlive = %v, want c's error", err)
	}
	for _, part := range []*fakeLease{a, b} {
		if !slices.Equal(part.asked, []string{"keep", "stop"}) {
			t.Errorf("%s was asked to %q, want that its renewal ends", part.name, part.asked)
		}
	}
}

// TestAllTooSlow: if the first grants are old when the last one comes, all are extended, and if that fails
// none is held. A loss begins all over again, until ctx ends.
func TestAllTooSlow(t *testing.T) {
	for _, tt := range []struct {
		what    string
		takes   time.Duration
		extends error
		cause   error
		says    string
		begins  int
	}{
		{what: "soon", takes: time.Second - 1, extends: errWhy, begins: 1},
		{what: "extended", takes: 2 * time.Second, begins: 1},
		{what: "no server", takes: 2 * time.Second, extends: ErrUnsent, says: `lock "a": not sent; lock "b": not sent`, begins: 1},
		{what: "a loss", takes: 2 * time.Second, extends: ErrLost, says: `lock "b": lock lost; gave up: context deadline exceeded`, begins: 3},
		{what: "a loss, called off", takes: 2 * time.Second, extends: ErrLost, cause: errWhy, says: `lock "b": lock lost; gave up: context deadline exceeded: why`, begins: 3},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var leases []*fakeLease
				made := func(name string) (Lease, error) {
					leases = append(leases, &fakeLease{name: name, extends: tt.extends})
					return leases[len(leases)-1], nil
				}
				var begun []time.Time
				a := &fakeLock{name: "a", lease: func(context.Context) (Lease, error) { begun = append(begun, time.Now()); return made("a") }}
				b := &fakeLock{name: "b", lease: func(context.Context) (Lease, error) { time.Sleep(tt.takes); return made("b") }}
				l, err := All(b, a)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, tt.cause)
				defer cancel()
				lease, err := l.Acquire(ctx)
				if (err == nil) != (tt.says == "") || (lease == nil) != (err != nil) || err != nil && !strings.HasSuffix(err.Error(), tt.says) {
					t.Errorf("Acquire = %v, %v, want %q", lease, err, tt.says)
				}
				if tt.extends != nil && tt.says != "" && !errors.Is(err, tt.extends) {
					t.Errorf("Acquire = %v, want %v", err, tt.extends)
				}
				if len(begun) != tt.begins {
					t.Errorf("began %d times, want %d", len(begun), tt.begins)
				}
				for i, at := range begun[1:] {
					if at.Sub(begun[i]) <= tt.takes {
						t.Errorf("began again after %v, want a pause", at.Sub(begun[i]))
					}
				}
				for _, lease := range leases {
					if slices.Contains(lease.asked, "release") != (err != nil) {
						t.Errorf("%s was asked to %q, and Acquire = %v", lease.name, lease.asked, err)
					}
					if slices.Contains(lease.asked, "extend") != (tt.takes > time.Second) {
						t.Errorf("%s was asked to %q after %v", lease.name, lease.asked, tt.takes)
					}
				}
			})
		})
	}
}

// TestAllFindsOneHeld: the error names the lock that failed, and the others are free.
func TestAllFindsOneHeld(t *testing.T) {
	t.Parallel()
	part := &fakeLease{name: "a"}
	a := &fakeLock{name: "a", lease: func(context.Context) (Lease, error) { return part, nil }}
	b := &fakeLock{name: "b", lease: func(context.Context) (Lease, error) { return nil, &HeldError{Name: "b"} }}
	l, err := All(a, b)
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Acquire(t.Context())
	if !errors.Is(err, ErrHeld) || err.Error() != `lock "a, b": lock "b": held` || !slices.Equal(part.asked, []string{"keep", "release"}) {
		t.Errorf("Acquire = %v, want that b is held; a was asked to %q", err, part.asked)
	}
}

// TestDoWithinEndsItsContext: what bounds the wait is over with the wait.
func TestDoWithinEndsItsContext(t *testing.T) {
	t.Parallel()
	part := &fakeLease{name: "a"}
	l := &fakeLock{name: "a", lease: func(context.Context) (Lease, error) { return part, nil }}
	err := DoWithin(t.Context(), time.Hour, l, func(ctx context.Context, _ Lease) error { return ctx.Err() })
	if err != nil || l.asked[0].Err() == nil {
		t.Errorf("DoWithin = %v, and its context of the wait lasts, want an end", err)
	}
}
