package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

// GuardKey is the key of the restart guard on each server: a hash of some hundred bytes without a
// TTL. No lock has this key, because [strategy.DefaultKey] puts a brace into each. A missing guard is
// the signal: what deletes it (FLUSHALL, a restart without data) may have deleted locks.
const GuardKey = "lock:redlock:guard"

// WithoutGuard lets every server vote at once, also one that has just come back without its data: then
// two contenders may hold the lock. It is for servers that an operator never lets come back before the
// longest TTL has passed. All users of a lock must agree: with one unguarded user none is protected.
func WithoutGuard() Option {
	return func(p *protocol) { p.unguarded = true }
}

// WithMaxTTL is the longest TTL that any client uses on these servers, and the time that the restart
// guard takes: a server that may have forgotten locks does not vote until MaxTTL has passed since
// the first request for a lock that reached it afterwards. Until then it counts as down
// ([GuardError]), but goes on to extend and release what it has. If more than a minority of the
// servers restart within one MaxTTL, nothing is granted until a majority votes again.
//
// Whole milliseconds, 10 ms to 24 h; a longer [strategy.Options].TTL is
// refused. The default is the longest TTL that this strategy has used or has learned from a server.
// That is best effort: a client with a short TTL that finds a server empty cannot learn of a longer
// one. The server then votes too early, and stops again when a client brings the longer TTL. So
// where TTLs differ, set the same MaxTTL everywhere, also in locks exec (--max-ttl).
//
// A server remembers the longest TTL that a client brought: one lock of a day makes each later restart
// cost a day.
func WithMaxTTL(d time.Duration) Option {
	return func(p *protocol) { p.maxTTL = &d }
}

// Why a server does not vote: [GuardError].Reason.
const (
	ReasonEmpty     = "empty"     // it has no guard: it is new, or what it knew is gone
	ReasonRestarted = "restarted" // it was restarted, or promoted, since it began to vote: it may know less
)

// A GuardError says why a server does not vote yet, and for how long. The server refuses
// ([strategy.ErrRefused]) until everything that it may have forgotten has expired.
type GuardError struct {
	Reason string        // ReasonEmpty or ReasonRestarted
	For    time.Duration // until it votes, by its clock; 0: it votes, but has forgotten since it granted this lock
	Begun  bool          // whether this time has begun. After Check it may not have: it begins with the first request for a lock
}

func (e *GuardError) Error() string {
	why := "it was restarted or promoted, and may have forgotten locks"
	if e.Reason == ReasonEmpty {
		why = "it is new or was emptied, and may have forgotten locks"
	}
	switch {
	case e.For <= 0:
		return "it votes, but has forgotten since it granted this lock: " + why
	case !e.Begun:
		return fmt.Sprintf("it does not vote until %v after its first request for a lock (Check makes none): %s", e.For, why)
	}
	return fmt.Sprintf("it does not vote for %v: %s", e.For, why)
}

// guarded is the *GuardError of a reply {"guard", why, ms, longest TTL}, or {"unasked", …} of check.lua;
// nil: it is another reply.
func (p *protocol) guarded(n driver.Node, reply any) error {
	r, _ := reply.([]any)
	if len(r) != 4 {
		return nil
	}
	mark, _ := r[0].([]byte)
	why, _ := r[1].([]byte)
	ms, ok := r[2].(int64)
	longest, ok2 := r[3].(int64)
	begun := string(mark) == "guard"
	if !begun && string(mark) != "unasked" || !ok || !ok2 {
		return nil
	}
	p.learnTTL(longest)
	return &strategy.ServerError{Node: n.Name(), Kind: strategy.ErrRefused,
		Err: &GuardError{Reason: string(why), For: time.Duration(max(ms, 0)) * time.Millisecond, Begun: begun}}
}

// longest is the longest TTL in use that this client knows of, ttl among them, in milliseconds.
func (p *protocol) longest(ttl time.Duration) int64 {
	p.learnTTL(ttl.Milliseconds())
	if p.maxTTL != nil {
		p.learnTTL(p.maxTTL.Milliseconds())
	}
	return p.known.Load()
}

// learnTTL notes that a client uses a TTL of so many milliseconds.
func (p *protocol) learnTTL(ms int64) { raise(&p.known, ms) }

// What an operator can do. Bootstrap is for new servers, all of which are empty: nobody can vouch for one that was
// restarted or promoted, or that is empty next to others that are not.
const (
	bootstrapHelps = "if they have forgotten no lock that is held, redlock.Bootstrap (locks bootstrap) lets them vote at once"
	emptiedWaits   = "a server that is empty next to others has lost its data, or takes the place of one: let it wait; with redlock.Bootstrap (locks bootstrap) a lock might be granted twice"
)

// LongestTTL is the longest TTL that the restart guards of the nodes know of: the longest that any client has
// brought. Zero: no node that answers knows of one. It changes nothing.
func LongestTTL(ctx context.Context, due time.Time, nodes []driver.Node) time.Duration {
	var longest atomic.Int64
	onAll(nodes, func(_ int, n driver.Node) {
		reply, _ := n.Do(ctx, due, "HMGET", GuardKey, "max")
		if fields, _ := reply.([]any); len(fields) == 1 {
			text, _ := fields[0].([]byte)
			ms, _ := strconv.ParseInt(string(text), 10, 64)
			raise(&longest, ms)
		}
	})
	return time.Duration(longest.Load()) * time.Millisecond
}

// raise makes a number of milliseconds known, if it is the longest. A server may have been given a number that no
// lock can use; it must not spread.
func raise(known *atomic.Int64, ms int64) {
	ms = min(ms, contract.MaxTTL.Milliseconds())
	for {
		last := known.Load()
		if ms <= last || known.CompareAndSwap(last, ms) {
			return
		}
	}
}

// advised adds to an error of too few votes what ends the wait, if the guard is the reason.
func (p *protocol) advised(err error) error {
	var none *strategy.QuorumError
	if !errors.As(err, &none) || none.Held != nil {
		return err
	}
	guarded, others, longest := 0, false, time.Duration(0)
	for _, a := range none.Nodes {
		var g *GuardError
		if errors.As(a.Err, &g) && g.For > 0 {
			guarded, longest = guarded+1, max(longest, g.For)
			others = others || g.Reason != ReasonEmpty
		} else if a.Err == nil || errors.Is(a.Err, strategy.ErrHeld) {
			others = true // it votes
		}
	}
	if guarded <= len(p.nodes)-p.quorum {
		return err
	}
	if others {
		return fmt.Errorf("%w; they vote in %v", err, longest)
	}
	return fmt.Errorf("%w; they vote in %v; %s", err, longest, bootstrapHelps)
}

// validateGuard looks at the guard's settings, and at the fences, which rest on it.
func (p *protocol) validateGuard(o strategy.Options) error {
	d := p.maxTTL
	switch {
	case p.unguarded && p.fences:
		return errors.New("locks: redlock.WithFences together with WithoutGuard: allowed is one of them, because without the guard a server may have forgotten fences")
	case p.unguarded && d != nil:
		return errors.New("locks: redlock.WithMaxTTL together with WithoutGuard: allowed is one of them, because MaxTTL is for the guard")
	case d == nil:
	case *d < contract.MinTTL || *d > contract.MaxTTL || *d%time.Millisecond != 0:
		return fmt.Errorf("locks: redlock.WithMaxTTL is %v: allowed are whole milliseconds from %v to %v", *d, contract.MinTTL, contract.MaxTTL)
	case o.TTL > *d:
		return fmt.Errorf("locks: Options.TTL is %v: allowed are TTLs up to redlock.WithMaxTTL, which is %v", o.TTL, *d)
	}
	return nil
}

// checkVote asks a node whether it votes, and changes nothing.
func (p *protocol) checkVote(ctx context.Context, due time.Time, n driver.Node, ttl time.Duration) error {
	if p.unguarded {
		return nil
	}
	reply, err := n.Eval(ctx, due, check, []string{GuardKey}, p.longest(ttl))
	switch {
	case err != nil:
		return err
	case reply == int64(1):
		return nil
	}
	if err := p.guarded(n, reply); err != nil {
		return err
	}
	return rediskit.BadReply(n.Name(), reply)
}
