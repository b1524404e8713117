package contender

// Workers on the engine in a bubble, on a network that loses and delays: no judge of histories objects, and all that
// may happen to a worker does. That broken locks offend, the table of lab/history and the nemesis show.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/lockstest"
)

const (
	ms  = time.Millisecond
	ttl = 300 * ms
)

// network loses and delays what it carries; what it does comes from the seed.
func network(seed uint64) lockstest.Fault {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 3))
	draw := func() (int, time.Duration, time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(100), time.Duration(rng.Int64N(int64(5 * ms))), time.Duration(rng.Int64N(int64(100 * ms)))
	}
	return func(_ context.Context, _ lockstest.Request, serve func() error) error {
		what, brief, long := draw()
		time.Sleep(brief)
		switch {
		case what < 4:
			return lockstest.Unknown()
		case what < 8:
			serve()
			return lockstest.Unknown()
		case what < 10:
			return lockstest.Unsent()
		case what < 12:
			return lockstest.Refused("LOADING")
		case what < 20:
			time.Sleep(long)
			err := serve()
			time.Sleep(long / 2)
			return err
		}
		err := serve()
		time.Sleep(brief / 2)
		return err
	}
}

// play lets five clients work, each with two workers, for some seconds.
func play(t *testing.T, m *lockstest.Memory, rules history.Rules, seed uint64) (ops []history.Op) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Second) // until what is under way has come
		m.Intercept(network(seed))
		var p driver.Protocol = m
		if rules.Permits > 1 || rules.ReadWrite {
			p = m.Shares(nil, rules.Permits)
		}
		work := Workload{
			Locks: []string{"k"}, Workers: 2, Patience: 5 * time.Second, Think: 350 * ms, Rest: 50 * ms,
			Try: 3, Renew: 4, Keep: 4, Overstay: 10, Permits: rules.Permits, Heavy: 4, ReadWrite: rules.ReadWrite, Write: 4, Downgrade: 2,
		}
		if rules.Reentrant {
			work.Reenter = 3
		}
		r, store := history.NewRecorder(nil), &Store{cells: map[string]*cell{}}
		for i := range 5 {
			c, err := newClient(Setup{Name: fmt.Sprint("P", i), TTL: ttl, OpTimeout: 40 * ms, RetryOnError: i%2 == 0}, p, r)
			if err != nil {
				t.Fatal(err)
			}
			if rules.Permits <= 1 { // permits protect no value
				c.store = func(op history.Op, value *string) error {
					time.Sleep(ms) // on its way
					return store.Serve(op, value)
				}
			}
			work.Seed = 10*seed + uint64(i)
			if err := c.work(work); err != nil {
				t.Fatal(err)
			}
			if err := c.work(work); err == nil {
				t.Error("a second work at the same time is begun, want an error")
			}
			defer func() {
				if err := c.rest(); err != nil {
					t.Error(err)
				}
				c.close() // what it could not undo it says, which is its duty
				ops = r.Ops()
			}()
		}
		time.Sleep(10 * time.Second)
	})
	return ops
}

// count counts what workers did, in words.
func count(seen map[string]int, ops []history.Op) {
	acquired, until := map[string]history.Op{}, map[string]time.Duration{} // by hold
	extended, released := map[string]bool{}, map[string]bool{}
	for _, op := range ops {
		note := func(what string, so bool) {
			if so {
				seen[what]++
			}
		}
		ok := op.Result == history.OK
		note(fmt.Sprint(op.Kind, " ", op.Result), true)
		switch op.Kind {
		case history.KindAcquire:
			note("several permits", ok && op.Share > 1)
			note("reads", ok && op.Share == 1)
			note("goes on to read", ok && op.From != "")
			outer, again := until[op.Owner]
			note("enters again", ok && again && outer > op.End)
			note("after an attempt of unknown outcome", ok && op.Unconfirmed > 0)
			acquired[op.Hold] = op
			if ok {
				until[op.Owner] = op.Deadline
			}
		case history.KindRenew:
			extended[op.Hold] = extended[op.Hold] || !op.Noticed
			note("extends", ok && !op.Noticed)
		case history.KindRelease:
			released[op.Hold] = true
			note("kept alive", ok && !extended[op.Hold] && op.Start > acquired[op.Hold].End+ttl)
		case history.KindLost:
			note("lost at the deadline", op.Start < until[op.Hold] && op.End >= until[op.Hold])
		}
		if op.Deadline != 0 {
			until[op.Hold] = op.Deadline
		}
	}
	for _, op := range ops {
		if op.Kind == history.KindLost && !released[op.Hold] {
			seen["overstayed"]++
		}
	}
}

func TestWork(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]history.Rules{
		"exclusive": {}, "re-entrant": {Reentrant: true}, "permits": {Permits: 3}, "readers": {ReadWrite: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := map[string]int{}
			for seed := range uint64(6) {
				m := &lockstest.Memory{}
				m.Reentrant = rules.Reentrant
				ops := play(t, m, rules, seed)
				rules.Fenced, rules.Bound, rules.Linger = true, 5*time.Second, ttl
				if found := history.Judge(ops, rules); len(found) > 0 {
					t.Errorf("seed %d: %d violations: %v", seed, len(found), found[0])
				}
				count(seen, ops)
				seen["together"] += len(history.Exclusion(ops, history.Rules{Reentrant: rules.Reentrant, Permits: rules.Permits - 1}))
			}
			wants := []string{
				"acquire ok", "acquire held", "acquire unknown", "after an attempt of unknown outcome", "release ok", "release lost",
				"release unknown", "extends", "kept alive", "lost at the deadline", "overstayed",
			}
			switch {
			case rules.Reentrant:
				wants = append(wants, "enters again", "write ok")
			case rules.ReadWrite:
				wants = append(wants, "reads", "goes on to read", "write ok", "together")
			case rules.Permits > 1:
				wants = append(wants, "several permits", "together")
			}
			if missing := slices.DeleteFunc(wants, func(what string) bool { return seen[what] > 0 }); len(missing) > 0 {
				t.Errorf("none of %q in %v", missing, seen)
			}
		})
	}
}
