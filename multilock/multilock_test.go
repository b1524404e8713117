// Tests what the lock of several does with leases of any make: which contexts they give and end, and that the loss of
// a part is seen by each call, also before the part's context ends. The rest of their tests is in engine.
package multilock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/internal/holdstart"
	"github.com/lockstrategies/locks/strategy"
)

var errWhy = errors.New("why")

// A fakeLock is free, if it makes a lease.
type fakeLock struct {
	strategy.Lock
	name  string
	lease func(ctx context.Context) (strategy.Lease, error)
	asked []context.Context
}

// gives is a lock that gives this lease, or this error.
func gives(name string, l strategy.Lease, err error) *fakeLock {
	return &fakeLock{name: name, lease: func(context.Context) (strategy.Lease, error) { return l, err }}
}

// all is the lock of these.
func all(t *testing.T, locks ...strategy.Lock) strategy.Lock {
	t.Helper()
	l, err := New(locks...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func isLost(l strategy.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

func (l *fakeLock) Name() string { return l.name }
func (l *fakeLock) Key() string  { return l.name }

func (l *fakeLock) Acquire(ctx context.Context) (strategy.Lease, error) {
	if l.asked = append(l.asked, ctx); len(l.asked) > 100 {
		panic("asked 100 times, want that somebody gives up")
	}
	return l.lease(ctx)
}

func (l *fakeLock) TryAcquire(ctx context.Context) (strategy.Lease, error) { return l.Acquire(ctx) }

// A fakeLease keeps what it is asked for, and tells its loss only when it is asked.
type fakeLease struct {
	strategy.Lease
	name           string
	end, renewal   error
	extends, keeps error // what these return
	releases       error
	takes          time.Duration // that extending, and releasing, do
	lasts          time.Duration // until its deadline; 0: 10 s
	bound          time.Duration // of the last KeepAlive
	released       func()        // is called by Release
	asked          []string
	extending      context.Context      // of the last Extend
	cancels        []context.CancelFunc // of its contexts
}

func (l *fakeLease) note(what string) { l.asked = append(l.asked, what) }

func (l *fakeLease) Name() string        { return l.name }
func (l *fakeLease) Token() string       { return "token of " + l.name }
func (l *fakeLease) Err() error          { return l.end }
func (l *fakeLease) RenewalErr() error   { return l.renewal }
func (l *fakeLease) Deadline() time.Time { return time.Now().Add(cmp.Or(l.lasts, 10*time.Second)) }
func (l *fakeLease) StopKeepAlive()      { l.note("stop") }

func (l *fakeLease) Extend(ctx context.Context) error {
	l.note("extend")
	l.extending = ctx
	time.Sleep(l.takes)
	return l.extends
}

func (l *fakeLease) KeepAlive(maxHold time.Duration) error {
	l.note("keep")
	l.bound = maxHold
	return l.keeps
}

func (l *fakeLease) Release(context.Context) error {
	l.note("release")
	if l.released != nil {
		l.released()
	}
	time.Sleep(l.takes)
	return l.releases
}

func (l *fakeLease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	l.cancels = append(l.cancels, cancel)
	return ctx, cancel
}

// abc is one lock of a, b and c with those leases, which are then asked for nothing yet.
func abc(t *testing.T) (whole *lease, a, b, c *fakeLease) {
	t.Helper()
	var parts []*fakeLease
	var locks []strategy.Lock
	for _, name := range []string{"a", "b", "c"} {
		part := &fakeLease{name: name}
		parts = append(parts, part)
		locks = append(locks, gives(name, part, nil))
	}
	held, err := all(t, locks...).Acquire(t.Context())
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
	return held.(*lease), parts[0], parts[1], parts[2]
}

// TestAllFails: the error names the lock that failed, and the others are free: also if a part panics, in a Backoff of its
// user's, say.
func TestAllFails(t *testing.T) {
	t.Parallel()
	a := &fakeLease{name: "a"}
	released := func() {
		t.Helper()
		if !slices.Equal(a.asked, []string{"keep", "release"}) {
			t.Errorf("a was asked to %q, want that it is released", a.asked)
		}
		a.asked = nil
	}
	_, err := all(t, gives("a", a, nil), gives("b", nil, &strategy.HeldError{Name: "b"})).Acquire(t.Context())
	if !errors.Is(err, strategy.ErrHeld) || err.Error() != `lock "a, b": lock "b": held` {
		t.Errorf("Acquire = %v, want that b is held", err)
	}
	released()
	panics := &fakeLock{name: "b", lease: func(context.Context) (strategy.Lease, error) { panic("b") }}
	defer func() {
		if recover() != "b" {
			t.Error("b's panic did not come")
		}
		released()
	}()
	all(t, gives("a", a, nil), panics).Acquire(t.Context())
}

// TestAllSeesALoss: each call finds that a part is lost, ends the whole with that, and asks nothing of the
// other parts but to end.
func TestAllSeesALoss(t *testing.T) {
	t.Parallel()
	for call, do := range map[string]func(l *lease) error{
		"Err":       (*lease).Err,
		"Extend":    func(l *lease) error { return l.Extend(t.Context()) },
		"KeepAlive": func(l *lease) error { return l.KeepAlive(0) },
		"Release":   func(l *lease) error { return l.Release(t.Context()) },
		"Context":   func(l *lease) error { ctx, _ := l.Context(t.Context()); return context.Cause(ctx) },
		"RenewalErr": func(l *lease) error {
			if err := l.RenewalErr(); err != nil {
				t.Errorf("RenewalErr of a lost lease = %v, want nil", err)
			}
			return l.end
		},
	} {
		whole, a, b, _ := abc(t)
		a.renewal, b.end = errWhy, &strategy.LostError{Name: "b"}
		err := do(whole)
		if err == nil || err != whole.Err() || !errors.Is(err, strategy.ErrLost) {
			t.Errorf("%s after a loss = %v, want that of Err, %v", call, err, whole.Err())
		}
		if !isLost(whole) {
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

// TestAllHearsOfALoss: the loss of any part ends the whole at once, though nobody asks.
func TestAllHearsOfALoss(t *testing.T) {
	for i := range 3 {
		synctest.Test(t, func(t *testing.T) {
			whole, a, b, c := abc(t)
			ctx, _ := whole.Context(t.Context())
			part := []*fakeLease{a, b, c}[i]
			part.end = &strategy.LostError{Name: part.name}
			for _, cancel := range part.cancels {
				cancel()
			}
			synctest.Wait()
			if !isLost(whole) {
				t.Errorf("Lost is open after the loss of %s", part.name)
			}
			if cause := context.Cause(ctx); !errors.Is(cause, strategy.ErrLost) {
				t.Errorf("after the loss of %s the cause of a context is %v, want ErrLost", part.name, cause)
			}
		})
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
	if err := whole.Release(t.Context()); err != nil || context.Cause(ctx) != strategy.ErrReleased {
		t.Errorf("Release = %v, cause of a context = %v, want nil, ErrReleased", err, context.Cause(ctx))
	}
	if ctx, _ = whole.Context(t.Context()); context.Cause(ctx) != strategy.ErrReleased {
		t.Errorf("cause of a context of a released lease = %v, want ErrReleased", context.Cause(ctx))
	}
}

// TestAllReleases: all parts at the same time, when the lease and its contexts are over. Lost stays open. The error
// names each that has failed.
func TestAllReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole, a, b, c := abc(t)
		ctx, _ := whole.Context(t.Context())
		a.releases, c.releases = errWhy, strategy.ErrUnsent
		for _, part := range []*fakeLease{a, b, c} {
			part.takes = time.Second
			part.released = func() {
				if whole.Err() != strategy.ErrReleased || context.Cause(ctx) != strategy.ErrReleased {
					t.Errorf("while %s is released, Err = %v, the cause is %v, want ErrReleased", part.name, whole.Err(), context.Cause(ctx))
				}
			}
		}
		began := time.Now()
		err := whole.Release(t.Context())
		if took := time.Since(began); took != time.Second {
			t.Errorf("Release took %v, want the second of each part", took)
		}
		var failed *Error
		if !errors.As(err, &failed) || !slices.Equal(failed.Names, []string{"a", "c"}) || !slices.Equal(failed.Errs, []error{errWhy, strategy.ErrUnsent}) {
			t.Errorf("Release = %v, want the errors of a and c", err)
		}
		if isLost(whole) {
			t.Error("Lost is closed by a release")
		}
	})
}

// TestAllOfDifferentParts: what the whole says of itself is of all parts, whichever it is that differs.
func TestAllOfDifferentParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole, a, b, c := abc(t)
		if got, want := whole.Token(), "token of a token of b token of c"; got != want {
			t.Errorf("Token = %q, want %q", got, want)
		}
		if got := strategy.OwnerFrom(first(whole.Context(strategy.WithOwner(t.Context(), "another")))); got != whole.Owner() || got == "" {
			t.Errorf("a context names the owner %q, want %q", got, whole.Owner())
		}
		for _, part := range []*fakeLease{a, b, c} {
			part.takes, part.lasts, part.extends, part.renewal = time.Second, 5*time.Second, errWhy, errWhy
			if left := time.Until(whole.Deadline()); left != 5*time.Second {
				t.Errorf("%v are left until the deadline, want the 5s of %s", left, part.name)
			}
			began := time.Now()
			for what, err := range map[string]error{"Extend": whole.Extend(t.Context()), "RenewalErr": whole.RenewalErr()} {
				var failed *Error
				if !errors.As(err, &failed) || !slices.Equal(failed.Names, []string{part.name}) || !errors.Is(err, errWhy) {
					t.Errorf("%s = %v, want that of %s", what, err, part.name)
				}
			}
			if took := time.Since(began); took != time.Second {
				t.Errorf("Extend took %v, want a second: all parts at the same time", took)
			}
			part.lasts, part.extends, part.renewal = 0, nil, nil
		}
		parts := Parts(whole)
		parts[0] = nil
		if Parts(whole)[0] != strategy.Lease(a) {
			t.Error("who changes what Parts returns changes the lease")
		}
	})
}

func first(ctx context.Context, _ context.CancelFunc) context.Context { return ctx }

// TestAllBegin: the maximum hold begins for all parts when the last one is there, and not before. A part that cannot end
// its renewal is then told to end with its maximum hold.
func TestAllBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fakeLease{name: "a"}, &fakeLease{name: "b"}
		var starts []*holdstart.Start
		lock := func(name string, part strategy.Lease) *fakeLock {
			return &fakeLock{name: name, lease: func(ctx context.Context) (strategy.Lease, error) {
				time.Sleep(100 * time.Millisecond)
				start := holdstart.From(ctx)
				if starts = append(starts, start); !start.Of(time.Now()).IsZero() {
					t.Errorf("the hold of %s has begun at its own grant, want not before the last", name)
				}
				return part, nil
			}}
		}
		lease, err := all(t, lock("a", a), lock("b", struct{ strategy.Lease }{b})).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last := time.Now()
		time.Sleep(time.Second)
		for i, start := range starts {
			if at := start.Of(time.Time{}); !at.Equal(last) {
				t.Errorf("the hold of part %d begins at %v, want at the last grant, %v", i, at, last)
			}
		}
		for _, asked := range [][]string{a.asked, b.asked} { // b is decorated
			if !slices.Equal(asked, []string{"keep", "stop"}) {
				t.Errorf("a part was asked to %q, want to keep and stop", asked)
			}
		}
		for _, bound := range []time.Duration{time.Minute, 0} {
			if err := lease.KeepAlive(bound); err != nil || a.bound != bound || b.bound != bound {
				t.Errorf("KeepAlive(%v) = %v, bounds the parts to %v, %v", bound, err, a.bound, b.bound)
			}
		}
	})
}

// TestAllLosesOneInHand: a lock that is lost while All waits for the next one is the reason, whether the next one is then
// acquired, held by another or not reached. Acquire begins again, with pauses that grow; TryAcquire does not. The locks in
// hand are released at the same time.
func TestAllLosesOneInHand(t *testing.T) {
	for what, next := range map[string]error{"acquired": nil, "held": &strategy.HeldError{Name: "c"}, "not reached": strategy.ErrUnsent, "its wait ended": context.Canceled} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var made []*fakeLease
				const losses = 31 // one in TryAcquire
				begun := 0
				take := func(name string) *fakeLease {
					made = append(made, &fakeLease{name: name, takes: time.Second})
					return made[len(made)-1]
				}
				a := &fakeLock{name: "a", lease: func(context.Context) (strategy.Lease, error) { begun++; return take("a"), nil }}
				b := &fakeLock{name: "b", lease: func(context.Context) (strategy.Lease, error) { return take("b"), nil }}
				c := &fakeLock{name: "c", lease: func(context.Context) (strategy.Lease, error) {
					if begun > losses {
						return take("c"), nil
					}
					made[len(made)-2].end = &strategy.LostError{Name: "a"}
					if next != nil {
						return nil, next
					}
					return take("c"), nil
				}}
				l := all(t, a, b, c)
				began := time.Now()
				lease, err := l.TryAcquire(t.Context())
				var failed *Error
				if lease != nil || !errors.As(err, &failed) || !slices.Equal(failed.Names, []string{"a"}) || !errors.Is(err, strategy.ErrLost) || next != nil && errors.Is(err, next) {
					t.Errorf("TryAcquire = %v, %v, want that a was lost", lease, err)
				}
				if took := time.Since(began); took != time.Second {
					t.Errorf("TryAcquire took %v, want a second: all are released at the same time", took)
				}
				began = time.Now()
				lease, err = l.Acquire(t.Context())
				if lease == nil || err != nil || begun != losses+1 {
					t.Errorf("Acquire = %v, %v, begun %d times, want a lease once nothing is lost", lease, err, begun)
				}
				if paused := time.Since(began) - (losses-1)*time.Second; paused < 500*time.Millisecond || paused > losses*250*time.Millisecond {
					t.Errorf("Acquire paused for %v in all, want random pauses of up to 250ms", paused)
				}
				for _, part := range made[:len(made)-3] {
					if !slices.Contains(part.asked, "release") {
						t.Errorf("%s was asked to %q, want that it is released", part.name, part.asked)
					}
				}
			})
		})
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
	whole.StopKeepAlive()
	for part, want := range map[*fakeLease][]string{a: {"keep", "stop", "stop"}, b: {"keep", "stop", "stop"}, c: {"keep", "stop"}} {
		if !slices.Equal(part.asked, want) {
			t.Errorf("%s was asked to %q, want %q", part.name, part.asked, want)
		}
	}
}

// late is a context whose timer does not run: its deadline passes, and neither Err nor Done tells.
type late struct {
	context.Context
	deadline time.Time
}

func (l late) Deadline() (time.Time, bool) { return l.deadline, true }

// TestAllTooSlow: if the first grants are old when the last one comes, all are extended, and if that fails
// none is held. A loss begins all over again, until ctx ends.
func TestAllTooSlow(t *testing.T) {
	for _, tt := range []struct {
		what    string
		takes   time.Duration
		lasts   time.Duration // that of short; the other lasts for 10 s
		short   string
		extends error
		cause   error
		late    bool // no timer tells of the deadline
		says    string
		begins  int // 0: more often
	}{
		{what: "soon", takes: time.Second - 1, extends: errWhy, begins: 1},
		{what: "extended", takes: 2 * time.Second, begins: 1},
		{what: "soon for b, and not for a", takes: 600 * time.Millisecond, lasts: 5 * time.Second, short: "a", extends: strategy.ErrUnsent, says: `lock "a": not sent; lock "b": not sent`, begins: 1},
		{what: "soon for a, and not for b", takes: 600 * time.Millisecond, lasts: 5 * time.Second, short: "b", begins: 1},
		{what: "no server", takes: 2 * time.Second, extends: strategy.ErrUnsent, says: `lock "a": not sent; lock "b": not sent`, begins: 1},
		{what: "a loss", takes: 2 * time.Second, extends: strategy.ErrLost, says: `lock "b": lock lost; gave up: context deadline exceeded`, begins: 3},
		{what: "a loss, and no timer runs", takes: 2 * time.Second, extends: strategy.ErrLost, late: true, says: `lock "b": lock lost; gave up: context deadline exceeded`, begins: 3},
		{what: "many losses", takes: 2 * time.Millisecond, lasts: 10 * time.Millisecond, short: "a", extends: strategy.ErrLost, says: `lock "b": lock lost; gave up: context deadline exceeded`},
		{what: "a loss, called off", takes: 2 * time.Second, extends: strategy.ErrLost, cause: errWhy, says: `lock "b": lock lost; gave up: context deadline exceeded: why`, begins: 3},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var leases []*fakeLease
				made := func(name string) (strategy.Lease, error) {
					leases = append(leases, &fakeLease{name: name, extends: tt.extends})
					if name == tt.short {
						leases[len(leases)-1].lasts = tt.lasts
					}
					return leases[len(leases)-1], nil
				}
				var begun []time.Time
				a := &fakeLock{name: "a", lease: func(context.Context) (strategy.Lease, error) { begun = append(begun, time.Now()); return made("a") }}
				b := &fakeLock{name: "b", lease: func(context.Context) (strategy.Lease, error) { time.Sleep(tt.takes); return made("b") }}
				ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, tt.cause)
				defer cancel()
				if tt.late {
					ctx = late{t.Context(), time.Now().Add(5 * time.Second)}
				}
				began := time.Now()
				lease, err := all(t, b, a).Acquire(ctx)
				if took := time.Since(began); took > 5*time.Second+tt.takes {
					t.Errorf("Acquire took %v, want that the end of ctx ends a pause at once, and another attempt does not begin", took)
				}
				if (err == nil) != (tt.says == "") || (lease == nil) != (err != nil) || err != nil && !strings.HasSuffix(err.Error(), tt.says) {
					t.Errorf("Acquire = %v, %v, want %q", lease, err, tt.says)
				}
				if tt.extends != nil && tt.says != "" && !errors.Is(err, tt.extends) {
					t.Errorf("Acquire = %v, want %v", err, tt.extends)
				}
				if len(begun) != tt.begins && tt.begins != 0 {
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
					if lease.extending != nil && lease.extending.Err() == nil {
						t.Errorf("%s is extended under a context that does not end with what All has in hand", lease.name)
					}
					if slices.Contains(lease.asked, "extend") != (tt.what != "soon") {
						t.Errorf("%s was asked to %q after %v", lease.name, lease.asked, tt.takes)
					}
				}
			})
		})
	}
}
