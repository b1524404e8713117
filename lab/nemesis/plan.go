package nemesis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
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
	c = c.filled()
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
	dense := max(c.Dense, 1)
	add(max(1, (c.Variant.Servers-1)/2), atServer)
	add(2*dense, atWay)
	add(dense, atClient)
	return plan, nil
}

// track is steps for longer than the run, if none took longer than it should.
func track(chance *rand.Rand, faults []string, c Config) Track {
	upTo := func(d time.Duration) time.Duration { return time.Duration(chance.Int64N(int64(d))) }
	var t Track
	for at := time.Duration(0); at < c.For; {
		s := Step{
			Pause:  upTo(2 * c.TTL / time.Duration(max(c.Dense, 1))),
			Fault:  faults[chance.IntN(len(faults))],
			Server: chance.IntN(c.Variant.Servers),
			Client: chance.IntN(Processes),
			For:    upTo(c.TTL / 2), // what most locks outlive
		}
		if chance.IntN(2) == 0 {
			s.For = c.TTL/2 + upTo(3*c.TTL/2) // and what none does
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
	ends    bool     // a client
	details []string // one of them, by chance
	shared  []string // likewise, of a lock that several may hold
	virtual bool     // only a simulation can do that
	member  bool     // only a Member can do that
	begin   func(ctx context.Context, a *arena, s Step) error
	end     func(ctx context.Context, a *arena, s Step) error // nil: it is over at once
}

type action = func(ctx context.Context, a *arena, s Step) error

func server(do func(Server, context.Context) error) action {
	return func(ctx context.Context, a *arena, s Step) error { return do(a.servers[s.Server], ctx) }
}

func way(do func(Way)) action {
	return func(_ context.Context, a *arena, s Step) error {
		do(a.seats[s.Client].ways[s.Server])
		return nil
	}
}

var heal = way(Way.Heal)

// slowed makes the ways of all to a server slower by 1 of so many parts of the time-out, until those of one are healed. 0: no
// longer.
func slowed(parts int) action {
	return func(_ context.Context, a *arena, s Step) error {
		by := time.Duration(0)
		if parts > 0 {
			by = a.OpTimeout / time.Duration(parts)
		}
		for _, seat := range a.seats {
			seat.ways[s.Server].Delay(rig.Both, by)
		}
		return nil
	}
}

var kinds = map[string]kind{
	"freeze":        {place: atServer, delays: true, begin: server(Server.Freeze), end: server(Server.Thaw)},
	"restart":       {place: atServer, begin: server(Server.Kill), end: server(Server.Restart)}, // with what it has on disk
	"restart empty": {place: atServer, forgets: true, guarded: true, begin: server(Server.Kill), end: server(Server.Restart)},
	"flush":         {place: atServer, forgets: true, guarded: true, begin: server(Server.FlushAll)},
	"clock jump": {place: atServer, forgets: true, begin: func(ctx context.Context, a *arena, s Step) error {
		return a.servers[s.Server].JumpClock(ctx, a.TTL)
	}},
	"no memory":      {place: atServer, begin: server(Server.FillMemory), end: server(Server.FreeMemory)},
	"read only":      {place: atServer, begin: server(Server.ReadOnly), end: server(Server.Writable)},
	"demotion":       {place: atServer, guarded: true, begin: server(demote)},
	"kill clients":   {place: atServer, begin: server(Server.KillClients)},
	"forget scripts": {place: atServer, begin: server(Server.FlushScripts)},
	"deny": {
		place:   atServer,
		details: []string{"set setnx getset", "del", "get getex", "eval evalsha", "publish subscribe", "pexpire pexpireat pttl", "client"},
		shared:  []string{"zadd", "zrem zremrangebyscore", "zrange zscore zcount zcard"},
		begin: func(ctx context.Context, a *arena, s Step) error {
			return a.servers[s.Server].Deny(ctx, strings.Fields(s.Detail)...)
		},
		end: server(Server.Allow),
	},

	"slow network": {place: atServer, delays: true, begin: slowed(3), end: slowed(0)},

	"hold requests": {place: atWay, delays: true, begin: way(func(w Way) { w.Hold(rig.Requests) }), end: heal},
	"hold replies":  {place: atWay, delays: true, begin: way(func(w Way) { w.Hold(rig.Replies) }), end: heal},
	"hold both":     {place: atWay, delays: true, begin: way(func(w Way) { w.Hold(rig.Both) }), end: heal},
	"cut requests":  {place: atWay, begin: way(func(w Way) { w.Cut(rig.Requests) }), end: heal},
	"cut replies":   {place: atWay, begin: way(func(w Way) { w.Cut(rig.Replies) }), end: heal},
	"cut both":      {place: atWay, begin: way(func(w Way) { w.Cut(rig.Both) }), end: heal},
	"slow": {place: atWay, delays: true, end: heal, begin: func(_ context.Context, a *arena, s Step) error {
		a.seats[s.Client].ways[s.Server].Delay(rig.Both, a.OpTimeout/3)
		return nil
	}},
	"reset":  {place: atWay, begin: way(Way.Reset)},
	"refuse": {place: atWay, begin: way(Way.Refuse), end: heal},

	"cut off": {place: atServer, member: true, begin: server(cutOff), end: server(rejoin)},

	"clock back": {place: atServer, virtual: true, begin: func(ctx context.Context, a *arena, s Step) error {
		return a.servers[s.Server].JumpClock(ctx, -ttl)
	}},
	"lagging fail-over": {place: atServer, virtual: true, forgets: true, guarded: true, begin: server(Server.Replicate), end: server(failOver)},
	"tear":              {place: atWay, virtual: true, begin: way(func(w Way) { w.(Tearer).Tear() })},
	"late": {
		place: atClient, virtual: true, delays: true,
		begin: func(_ context.Context, a *arena, s Step) error { return late(a.seats[s.Client].now, a.OpTimeout/4) },
		end:   func(_ context.Context, a *arena, s Step) error { return late(a.seats[s.Client].now, 0) },
	},

	"close": {
		place: atClient, virtual: true, ends: true,
		begin: func(_ context.Context, a *arena, s Step) error {
			at := a.seats[s.Client]
			return errors.Join(excused(at.now.(Quitter).Quit()), at.end())
		},
		end: func(ctx context.Context, a *arena, s Step) error { return a.seats[s.Client].begin(ctx, a) },
	},
	"pause": {
		place: atClient, delays: true,
		begin: func(ctx context.Context, a *arena, s Step) error { return a.seats[s.Client].now.Pause(ctx) },
		end:   func(_ context.Context, a *arena, s Step) error { return a.seats[s.Client].now.Thaw() },
	},
	"kill": {
		place: atClient, ends: true,
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
func demote(s Server, ctx context.Context) error {
	if err := s.Replicate(ctx); err != nil {
		return err
	}
	return s.HandOver(ctx)
}

// A Tearer is a Way that can end its connections in the middle of what is on its way; a Promoter a Server that can put the
// replica of the last Replicate in its own place, which has got nothing since; a Laggard a Process whose goroutines
// can run that much late; a Quitter one that can close its strategy while its workers work. Only a simulation has them.
type (
	Tearer   interface{ Tear() }
	Promoter interface{ Promote(context.Context) error }
	Laggard  interface{ Late(by time.Duration) }
	Quitter  interface{ Quit() error }
)

// A Member is a Server of a cluster. CutOff keeps it and the others from reaching each other, until Rejoin. Clients still reach all.
type Member interface {
	CutOff()
	Rejoin()
}

func cutOff(s Server, _ context.Context) error {
	s.(Member).CutOff()
	return nil
}

func rejoin(s Server, _ context.Context) error {
	s.(Member).Rejoin()
	return nil
}

func failOver(s Server, ctx context.Context) error { return s.(Promoter).Promote(ctx) }

func late(p Process, by time.Duration) error {
	p.(Laggard).Late(by)
	return nil
}

// Faults are all kinds.
func Faults() []string { return slices.Sorted(maps.Keys(kinds)) }

// Simulated are those that it claims to survive in a simulation, where more can be broken.
func Simulated(v subjects.Variant) []string {
	all := Survived(v)
	for name, k := range kinds {
		if k.virtual && (v.Servers > 1 || !k.forgets) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// Survived are the kinds of fault that a strategy claims to survive. Of a quorum they hit
// a minority at a time, which may forget everything; a server that is alone keeps all
// that it has answered on disk.
func Survived(v subjects.Variant) []string {
	if v.Servers > 1 {
		return allBut("restart", "clock jump")
	}
	return allBut("restart empty", "flush", "clock jump")
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

func allBut(names ...string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(kinds)), func(k string) bool { return kinds[k].virtual || kinds[k].member || slices.Contains(names, k) })
}
