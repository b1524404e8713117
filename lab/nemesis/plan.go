package nemesis

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/stage"
)

// A Step breaks one thing for a while.
type Step struct {
	Pause  time.Duration // before it, since the last of its track
	Fault  string        // its kind
	Server int           // from 0, as far as the kind has one
	Client int           // likewise
	For    time.Duration
	Detail string // what is denied
}

func (s Step) String() string {
	k := kinds[s.Fault]
	words := s.Fault
	if s.Detail != "" {
		words += " " + s.Detail
	}
	switch k.place {
	case atServer:
		words += fmt.Sprintf(", server %d", s.Server+1)
	case atWay:
		words += fmt.Sprintf(", client %d and server %d", s.Client+1, s.Server+1)
	default:
		words += fmt.Sprintf(", client %d", s.Client+1)
	}
	return words
}

// A Track is steps, one after the other. Several tracks run side by side, so their number
// is how much is broken at once.
type Track []Step

// Plan is what will be broken in a run: a function of the seed, the kinds of fault and
// the variant. Of several servers a minority is broken at most at any time, one in each
// track for servers.
func Plan(c Config) ([]Track, error) {
	byPlace := map[place][]string{}
	for _, f := range c.Faults {
		k, ok := kinds[f]
		if !ok {
			return nil, fmt.Errorf("nemesis: fault %q: allowed are %q", f, slices.Sorted(maps.Keys(kinds)))
		}
		byPlace[k.place] = append(byPlace[k.place], f)
	}
	chance := rand.New(rand.NewPCG(c.Seed, 0))
	var plan []Track
	add := func(tracks int, at place) {
		for range tracks {
			if of := byPlace[at]; len(of) > 0 {
				plan = append(plan, track(rand.New(rand.NewPCG(c.Seed, chance.Uint64())), of, c))
			}
		}
	}
	add(max(1, (c.Variant.Servers-1)/2), atServer)
	add(2, atWay)
	add(1, atClient)
	return plan, nil
}

// track is steps for longer than the run, if none took longer than it should.
func track(chance *rand.Rand, faults []string, c Config) Track {
	upTo := func(d time.Duration) time.Duration { return time.Duration(chance.Int64N(int64(d))) }
	var t Track
	for at := time.Duration(0); at < c.For; {
		s := Step{
			Pause:  upTo(2 * ttl),
			Fault:  faults[chance.IntN(len(faults))],
			Server: chance.IntN(c.Variant.Servers),
			Client: chance.IntN(Processes),
			For:    upTo(ttl / 2), // what most locks outlive
		}
		if chance.IntN(2) == 0 {
			s.For = ttl/2 + upTo(3*ttl/2) // and what none does
		}
		if k := kinds[s.Fault]; len(k.details) > 0 {
			details := k.details
			if sharing(c.Variant) {
				details = slices.Concat(details, k.shared)
			}
			s.Detail = details[chance.IntN(len(details))]
		}
		t = append(t, s)
		at += s.Pause + s.For
	}
	return t
}

// A place is what a fault hits.
type place int

const (
	atServer place = iota
	atWay          // one client's network to one server
	atClient
)

// A kind of fault.
type kind struct {
	place   place
	forgets bool     // a server loses locks by it
	guarded bool     // … and a guard notices, and keeps it from voting for a while
	delays  bool     // what was sent comes later
	details []string // one of them, by chance
	shared  []string // likewise, of a lock that several may hold
	begin   func(ctx context.Context, a *arena, s Step) error
	end     func(ctx context.Context, a *arena, s Step) error // nil: it is over at once
}

type action = func(ctx context.Context, a *arena, s Step) error

func server(do func(*rig.Node, context.Context) error) action {
	return func(ctx context.Context, a *arena, s Step) error { return do(a.rig.Nodes[s.Server], ctx) }
}

func way(do func(*rig.Link)) action {
	return func(_ context.Context, a *arena, s Step) error {
		do(a.seats[s.Client].links[s.Server])
		return nil
	}
}

var heal = way((*rig.Link).Heal)

// slowed makes the ways of all to a server that slow, until those of one are healed.
func slowed(by time.Duration) action {
	return func(_ context.Context, a *arena, s Step) error {
		for _, seat := range a.seats {
			seat.links[s.Server].Delay(rig.Both, by)
		}
		return nil
	}
}

var kinds = map[string]kind{
	"freeze":        {place: atServer, delays: true, begin: server((*rig.Node).Freeze), end: server((*rig.Node).Thaw)},
	"restart":       {place: atServer, begin: server((*rig.Node).Kill), end: server((*rig.Node).Restart)}, // with what it has on disk
	"restart empty": {place: atServer, forgets: true, guarded: true, begin: server((*rig.Node).Kill), end: server((*rig.Node).Restart)},
	"flush":         {place: atServer, forgets: true, guarded: true, begin: server((*rig.Node).FlushAll)},
	"clock jump": {place: atServer, forgets: true, begin: func(ctx context.Context, a *arena, s Step) error {
		return a.rig.Nodes[s.Server].JumpClock(ctx, ttl)
	}},
	"no memory":      {place: atServer, begin: server((*rig.Node).FillMemory), end: server((*rig.Node).FreeMemory)},
	"read only":      {place: atServer, begin: server((*rig.Node).ReadOnly), end: server((*rig.Node).Writable)},
	"demotion":       {place: atServer, guarded: true, begin: server(demote)},
	"kill clients":   {place: atServer, begin: server((*rig.Node).KillClients)},
	"forget scripts": {place: atServer, begin: server((*rig.Node).FlushScripts)},
	"deny": {
		place:   atServer,
		details: []string{"set setnx getset", "del", "get getex", "eval evalsha", "publish subscribe", "pexpire pexpireat pttl", "client"},
		shared:  []string{"zadd", "zrem zremrangebyscore", "zrange zscore zcount zcard"},
		begin: func(ctx context.Context, a *arena, s Step) error {
			return a.rig.Nodes[s.Server].Deny(ctx, strings.Fields(s.Detail)...)
		},
		end: server((*rig.Node).Allow),
	},

	"slow network": {place: atServer, delays: true, begin: slowed(opTimeout / 3), end: slowed(0)},

	"hold requests": {place: atWay, delays: true, begin: way(func(l *rig.Link) { l.Hold(rig.Requests) }), end: heal},
	"hold replies":  {place: atWay, delays: true, begin: way(func(l *rig.Link) { l.Hold(rig.Replies) }), end: heal},
	"hold both":     {place: atWay, delays: true, begin: way(func(l *rig.Link) { l.Hold(rig.Both) }), end: heal},
	"cut requests":  {place: atWay, begin: way(func(l *rig.Link) { l.Cut(rig.Requests) }), end: heal},
	"cut replies":   {place: atWay, begin: way(func(l *rig.Link) { l.Cut(rig.Replies) }), end: heal},
	"cut both":      {place: atWay, begin: way(func(l *rig.Link) { l.Cut(rig.Both) }), end: heal},
	"slow":          {place: atWay, delays: true, begin: way(func(l *rig.Link) { l.Delay(rig.Both, opTimeout/3) }), end: heal},
	"reset":         {place: atWay, begin: way((*rig.Link).Reset)},
	"refuse":        {place: atWay, begin: way((*rig.Link).Refuse), end: heal},

	"pause": {
		place: atClient, delays: true,
		begin: func(ctx context.Context, a *arena, s Step) error { return a.seats[s.Client].now.Pause(ctx) },
		end:   func(_ context.Context, a *arena, s Step) error { return a.seats[s.Client].now.Thaw() },
	},
	"kill": {
		place: atClient,
		begin: func(_ context.Context, a *arena, s Step) error {
			at := a.seats[s.Client]
			if err := at.now.Kill(); err != nil {
				return err
			}
			return at.end()
		},
		end: func(ctx context.Context, a *arena, s Step) error { return a.seats[s.Client].begin(ctx, a) },
	},
}

// demote makes a server the replica of another, which has all that it has answered. Connections to it stay open.
func demote(n *rig.Node, ctx context.Context) error {
	if err := n.Replicate(ctx); err != nil {
		return err
	}
	return n.HandOver(ctx)
}

// Survived are the kinds of fault that a strategy claims to survive. Of a quorum they hit
// a minority at a time, which may forget everything; a server that is alone keeps all
// that it has answered on disk.
func Survived(v subjects.Variant) []string {
	if v.Servers > 1 {
		return without("restart", "clock jump")
	}
	return without("restart empty", "flush", "clock jump")
}

// NotSurvived are those that it is known not to survive: the matrix of faults has ✗.
func NotSurvived(v subjects.Variant) []string {
	switch {
	case v.Servers > 1:
		return []string{"clock jump"} // which the guard does not see
	case v.Package == "setnxgetset":
		return []string{"flush", "restart empty"} // its keys have no TTL that could jump
	}
	return []string{"flush", "restart empty", "clock jump"}
}

func without(names ...string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(kinds)), func(k string) bool { return slices.Contains(names, k) })
}

// prepare makes servers what the strategy asks for.
func (a *arena) prepare(ctx context.Context) error {
	if slices.Contains(a.Faults, "restart") {
		for _, n := range a.rig.Nodes {
			if err := n.Persist(ctx, "always"); err != nil {
				return err
			}
		}
	}
	if !a.Variant.Guarded {
		return nil
	}
	return stage.Bootstrap(ctx, a.rig) // their former clients are gone
}
