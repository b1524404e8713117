// Tests how the suite judges: what becomes of weaknesses, exceptions, missing hooks, hangs, panics and trials
// that are called off.
package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/strategy"
)

func named(t *testing.T, name string) Property {
	t.Helper()
	properties := Properties()
	i := slices.IndexFunc(properties, func(p Property) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("there is no property %q", name)
	}
	return properties[i]
}

// blind is a lock with a weakness: it releases whatever is there.
func blind() Subject {
	i := slices.IndexFunc(mutants, func(x mutant) bool { return x.name == "forgets the token on release" })
	return mutants[i].subject()
}

func TestPropertiesAreWellDescribed(t *testing.T) {
	properties := Properties()
	if len(properties) < 35 {
		t.Errorf("there are %d properties, want 35 at least", len(properties))
	}
	seen := map[string]bool{}
	for _, p := range properties {
		if seen[p.Name] {
			t.Errorf("there are two properties %q", p.Name)
		}
		seen[p.Name] = true
		if p.Group == "" || !strings.HasSuffix(p.Clause, ".") || strings.Contains(p.Clause, ". ") {
			t.Errorf("%s: group %q, clause %q, want a group, and one sentence", p.Name, p.Group, p.Clause)
		}
	}
}

// TestVerdicts: a weakness is shown, and what is declared must be one that every trial can show.
func TestVerdicts(t *testing.T) {
	correct := func() Subject { return subjectOn(&memory.Server{}, "correct") }
	blinded := func() Subject {
		s := correct()
		s.Evict = nil
		return s
	}
	down := func() Subject {
		var m memory.Server
		m.Intercept(func(context.Context, memory.Request, func() error) error { return memory.Unsent() })
		return subjectOn(&m, "down")
	}
	off, callOff := context.WithCancel(t.Context())
	callOff()
	panics := Property{Name: "Panics", Group: "none", Clause: "It panics.", check: func(*trial) { panic("at the disco") }}
	for name, x := range map[string]struct {
		subject  Subject
		property Property
		excepted string // the property that the subject is known to lack
		want     Status
		says     []string
	}{
		"a weakness that is declared": {blind(), named(t, "ReleaseOnlyOwn"), "ReleaseOnlyOwn", Excused, []string{
			"confirmed: because", "C.TryAcquire() = <nil>, want ErrHeld: B holds the lock: A must not release it", "A.Release() = <nil>",
		}},
		"a weakness that is not":        {blind(), named(t, "ReleaseOnlyOwn"), "", Broken, nil},
		"none where one is declared":    {correct(), named(t, "ReleaseOnlyOwn"), "ReleaseOnlyOwn", Broken, []string{"delete the exception"}},
		"one that cannot be judged":     {blinded(), named(t, "ReleaseOnlyOwn"), "ReleaseOnlyOwn", Broken, []string{"cannot be judged"}},
		"a server that fails":           {down(), named(t, "Exclusive"), "Exclusive", Broken, []string{"unreachable"}},
		"a trial that is called off":    {correct(), named(t, "Exclusive"), "Exclusive", Broken, []string{"called off"}},
		"an exception left to chance":   {correct(), named(t, "Exclusive"), "Contention", Broken, []string{"only scripted"}},
		"an exception from no property": {correct(), named(t, "Exclusive"), "NoSuchProperty", Broken, []string{"no such property"}},
		"a panic":                       {correct(), panics, "", Broken, []string{"at the disco"}},
	} {
		ctx := t.Context()
		if name == "a trial that is called off" {
			ctx = off
		}
		if x.excepted != "" {
			x.subject.Except = map[string]string{x.excepted: "because"}
		}
		r := Check(ctx, x.subject, x.property)
		if r.Status != x.want {
			t.Errorf("%s: Check = %v: %v, want %v", name, r.Status, r, x.want)
		}
		for _, words := range x.says {
			if !strings.Contains(r.String(), words) {
				t.Errorf("%s: the result does not say %q:\n%v", name, words, r)
			}
		}
	}
}

// least is what no protocol can be without.
type least interface {
	Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error)
	Extend(ctx context.Context, c driver.Claim) (driver.Grant, error)
	Release(ctx context.Context, c driver.Claim) (driver.Outcome, error)
	Undo(ctx context.Context, c driver.Claim) error
}

// TestWhatIsMissingIsSaid: a lock without any hook is judged by what can be judged without, and each
// property that is skipped names the hook, the claim or the interface that would enable it.
func TestWhatIsMissingIsSaid(t *testing.T) {
	check := func(t *testing.T, p Property) (r Result) {
		synctest.Test(t, func(t *testing.T) {
			var m memory.Server
			r = Check(t.Context(), Subject{
				Name: "poor",
				Open: func(o strategy.Options) (strategy.Strategy, error) {
					return engine.New(struct {
						driver.Unsupported
						least
					}{least: &m}, o)
				},
				Fenced: true,
			}, p)
		})
		return r
	}
	for name, missing := range map[string]string{
		"ReleaseOnlyOwn": "Evict", "WrongType": "Spoil", "LeavesNothing": "Leftovers", "NoDeadlock": "OpenGated", "Persist": "OpenGated",
		"Processes": "ChildEnv", "WokenByNotification": "Notifier", "BrokenWatch": "BreakWatches", "NoBarging": "Fair", "Inspect": "Inspect", "ForceRelease": "Inspect", "Adopt": "Adopt",
		"PermitsBound": "OpenPermits", "ReadersTogether": "OpenRW",
	} {
		if r := check(t, named(t, name)); r.Status != Skipped || !strings.Contains(r.Reason, missing) {
			t.Errorf("Check of %s = %v (%s) %v, want skipped, for %s is missing", name, r.Status, r.Reason, r.Err, missing)
		}
	}
	kept := 0
	for _, p := range Properties() {
		switch r := check(t, p); {
		case r.Status == Kept:
			kept++
		case r.Status != Skipped:
			t.Errorf("Check of %s without any hook = %v, want kept or skipped", p.Name, r)
		case !strings.Contains(r.Reason, "Subject.") && !strings.Contains(r.Reason, "driver."):
			t.Errorf("Check of %s is skipped, because %q: want what would enable it, Subject.… or driver.…", p.Name, r.Reason)
		}
	}
	if kept < 25 {
		t.Errorf("%d properties are kept without any hook, want 25 at least", kept)
	}
}

// TestWatched: who looks at a trial hears of each contender and of each event, in order, and says how long it waits.
func TestWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := subjectOn(&memory.Server{}, "correct")
		var seen []string
		s.Patience, s.Opens = 3*time.Second, func(who string) { seen = append(seen, who+" is opened") }
		s.Observe = func(e Event) { seen = append(seen, e.Text) }
		p := Property{Name: "Waits", Group: "none", Clause: "It comes.", check: func(t *trial) {
			a, b := t.contender("A", ample), t.contender("B", ample)
			a.try().want(nil, "the lock is free").release()
			b.try()
			t.eventually("it comes", func() bool { return false })
		}}
		r := Check(t.Context(), s, p)
		want := []string{"A is opened", "B is opened", "A.TryAcquire() = <nil>", "A.Release() = <nil>", "B.TryAcquire() = <nil>"}
		if r.Status != Broken || !strings.Contains(r.Err.Error(), "still not so after 3s: it comes") || !slices.Equal(seen, want) {
			t.Errorf("it saw %q, want %q, and then: %v", seen, want, r)
		}
	})
}

func TestTheWatchdogSaysWhereItHangs(t *testing.T) {
	p := Property{Name: "Hangs", Group: "none", Clause: "It hangs.", check: hangForever}
	r := check(t.Context(), subjectOn(&memory.Server{}, "correct"), p, limits{patience: time.Second, watchdog: 50 * time.Millisecond})
	if r.Status != Broken || !strings.Contains(r.Err.Error(), "hangForever") {
		t.Errorf("check = %v: %v, want broken, and the stack of what hangs", r.Status, r.Err)
	}
}

func hangForever(t *trial) { <-t.ctx.Done() }

// TestSlowMachines: a failure on a machine that was late is no verdict, and the trial is held again
// with more time; if the machine or its servers were late each time, nothing is said, and not of an exception
// either.
func TestSlowMachines(t *testing.T) {
	late := func(t *trial, by time.Duration) { t.timers.note(by) }
	lapses := func(t *trial) { // as if 30 s had passed
		h := t.contender("A", ample).try().want(nil, "the lock is free")
		t.sleep(ample.TTL)
		if h.lapsed() {
			t.failf("B has the lock, too")
		}
	}
	answers := func(t *trial, err error) { // at once
		a := t.contender("A", ample)
		call{t: t, c: a, text: "A.Release()", err: &strategy.ServerError{Node: "n", Kind: err}}.want(nil, "A holds the lock")
	}
	for name, x := range map[string]struct {
		check func(t *trial)
		want  Status
		plays int
		says  string
		evict time.Duration // takes so long
	}{
		"no answer once": {func(t *trial) {
			if t.ttl == shortTTL {
				answers(t, strategy.ErrUnknown)
			}
		}, Kept, 2, "kept", 0},
		"never an answer": {func(t *trial) { answers(t, strategy.ErrUnknown) }, Broken, 3, "on time", 0},
		"refused once":    {func(t *trial) { answers(t, strategy.ErrRefused) }, Broken, 1, "refused", 0},
		"no answer once for one who is to wait": {func(t *trial) {
			a := t.gated("A", t.hasty())
			h := a.try().want(nil, "the lock is free")
			if t.ttl == shortTTL {
				defer a.holdUp().melt()
			}
			line := newQueue(a, 1, 0)
			h.release().want(nil, "A holds the lock")
			line.wantInOrder()
		}, Kept, 2, "kept", 0},
		"too slow once for one who polls": {func(t *trial) {
			if t.ttl == shortTTL {
				t.tooSlow("A's TTL")
			}
			o := t.hasty()
			o.Wait = strategy.WaitPoll
			a := t.gated("A", o)
			h := a.try().want(nil, "the lock is free")
			line := newQueue(a, 1, 0)
			h.release().want(nil, "A holds the lock")
			line.wantInOrder()
		}, Kept, 2, "kept", 0},
		"too slow once": {func(t *trial) {
			if t.ttl == shortTTL {
				t.tooSlow("A's TTL")
			}
		}, Kept, 2, "kept", 0},
		"too slow on a machine on time":         {func(t *trial) { t.tooSlow("A's TTL") }, Broken, 3, "on time", 0},
		"too slow on a late machine":            {func(t *trial) { late(t, time.Second); t.tooSlow("A's TTL") }, Skipped, 3, "INCONCLUSIVE", 0},
		"failed on a machine on time":           {func(t *trial) { t.brief(); t.failf("B has the lock, too") }, Broken, 1, "B has", 0},
		"failed on a machine a little late":     {func(t *trial) { late(t, time.Second); t.failf("B has the lock, too") }, Broken, 1, "B has", 0},
		"failed on a machine that was paused":   {func(t *trial) { late(t, 3*time.Second); t.failf("B has the lock, too") }, Skipped, 3, "INCONCLUSIVE", 0},
		"relied on a machine that was late":     {func(t *trial) { late(t, time.Second); t.brief(); t.failf("B has the lock, too") }, Broken, 3, "B has", 0},
		"relied on a machine that is very late": {func(t *trial) { late(t, 10*t.ttl); t.brief(); t.failf("B has the lock, too") }, Skipped, 3, "INCONCLUSIVE", 0},
		"outlasted a lock":                      {lapses, Broken, 3, "on time", 0},
		"outlasted a lock on slow servers":      {lapses, Skipped, 3, "INCONCLUSIVE", time.Second},
		"never an answer from slow servers":     {func(t *trial) { t.sleep(10 * time.Second); answers(t, strategy.ErrUnknown) }, Skipped, 3, "INCONCLUSIVE", time.Second},
		"never an answer from frozen servers":   {func(t *trial) { t.sleep(10 * time.Second); answers(t, strategy.ErrUnknown) }, Skipped, 3, "INCONCLUSIVE", time.Hour},
		"never an answer, while others have it": {func(t *trial) { t.sleep(10 * time.Second); answers(t, strategy.ErrUnknown) }, Broken, 3, "on time", onTime / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				plays := 0
				s := subjectOn(&memory.Server{}, "correct")
				s.Evict = func(ctx context.Context, _ string) error {
					select {
					case <-time.After(x.evict):
					case <-ctx.Done():
					}
					return ctx.Err()
				}
				p := Property{Name: "ReleaseOnlyOwn", Group: "none", Clause: "It is kept.", check: func(t *trial) { plays++; x.check(t) }}
				if r := Check(t.Context(), s, p); r.Status != x.want || plays != x.plays || !strings.Contains(r.String(), x.says) {
					t.Errorf("after %d trials Check = %v: %v, want %v after %d, and %q", plays, r.Status, r, x.want, x.plays, x.says)
				}
				s.Except = map[string]string{p.Name: "because"}
				if r := Check(t.Context(), s, p); (r.Status == Skipped) != (x.want == Skipped) {
					t.Errorf("Check with an exception = %v: %v, want it skipped: %v", r.Status, r, x.want == Skipped)
				}
			})
		})
	}
}

func TestHistoriesStayReadable(t *testing.T) {
	r := recorder{began: time.Now()}
	for range 100 {
		r.add("the same")
	}
	for i := range 3 * maxHistory {
		r.add("event %d", i)
	}
	h := r.history()
	if len(h) > maxHistory+1 || h[0].Times != 100 || h[len(h)-1].Text != "event 179" {
		t.Errorf("the history has %d events, the first %d times, the last %q, want %d at most, 100 times, the last", len(h), h[0].Times, h[len(h)-1].Text, maxHistory+1)
	}
	if !strings.Contains(h.String(), "events left out") {
		t.Errorf("the history does not say that events were left out:\n%v", h)
	}
}

// TestCalledOff calls each trial off at one of its first 40 requests, or, of all but one lock, at some of
// these: it says so, and ends then, and waits for nothing that cannot come any more. The time is fake.
func TestCalledOff(t *testing.T) {
	on := func(reentrant bool, subject func(*memory.Server, string) Subject) func(count func()) Subject {
		return func(count func()) Subject {
			server := &memory.Server{Reentrant: reentrant}
			server.Intercept(func(_ context.Context, _ memory.Request, serve func() error) error {
				count()
				return serve()
			})
			return subject(server, "memory")
		}
	}
	for name, subject := range map[string]func(count func()) Subject{
		"memory":     on(false, subjectOn),
		"reentrant":  on(true, subjectOn),
		"semaphore":  on(false, semaphoresOn),
		"read-write": on(false, readWritersOn),
		"quorum": func(count func()) Subject {
			s := quorumSubject("quorum", 3, 0, mistakes{})
			openNodes := s.OpenNodes
			s.OpenNodes = func(o strategy.Options, gates []Gate) (strategy.Strategy, error) {
				counted := make([]Gate, len(gates))
				for i, g := range gates {
					counted[i] = func(request string, send func()) {
						count()
						g(request, send)
					}
				}
				return openNodes(o, counted)
			}
			s.Open = func(o strategy.Options) (strategy.Strategy, error) {
				return s.OpenNodes(o, slices.Repeat([]Gate{open}, s.Nodes))
			}
			return s
		},
	} {
		for _, p := range Properties() {
			if p.Alone {
				continue
			}
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				for k, before := int64(1), int64(1); k <= 40 && calledOff(t, subject, p, k); {
					if name == "memory" {
						k++
					} else { // 1, 2, 3, 5, 8 …
						k, before = k+before, k
					}
				}
			})
		}
	}
}

// calledOff reports whether the trial came to its k-th request, at which it is called off.
func calledOff(t *testing.T, subject func(count func()) Subject, p Property, k int64) (came bool) {
	synctest.Test(t, func(t *testing.T) {
		ctx, callOff := context.WithCancelCause(t.Context())
		defer callOff(nil)
		enough := errors.New("enough")
		var requests, off atomic.Int64
		s := subject(func() {
			if requests.Add(1) == k {
				off.Store(time.Now().UnixNano())
				callOff(enough)
			}
		})
		r := check(ctx, s, p, limits{patience: time.Hour, watchdog: 2 * time.Hour})
		if came = off.Load() != 0; !came {
			if r.Status == Broken {
				t.Errorf("without being called off it is %v", r)
			}
			return
		}
		if r.Status == Broken && !errors.Is(r.Err, enough) && !errors.Is(r.Err, context.Canceled) {
			t.Errorf("called off at request %d it says %q, want why", k, r.Err)
		}
		if took := time.Since(time.Unix(0, off.Load())); took > 2*time.Second {
			t.Errorf("called off at request %d it ends %v later, want at once", k, took)
		}
	})
	return came
}
