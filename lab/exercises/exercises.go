// Package exercises has locks with one mistake each, for learners to put right. The verdict is that of the conformance
// suite. A learner edits the files in locks; solutions says what changes; docs/learn/exercises.md leads through them.
package exercises

import (
	"context"
	"embed"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lab/exercises/locks"
	"github.com/lockstrategies/locks/lab/exercises/solutions"
	"github.com/lockstrategies/locks/lab/lessons"
	"github.com/lockstrategies/locks/strategy"
)

// An Exercise is a lock with a mistake.
type Exercise struct {
	Number int
	Title  string
	Lesson int    // to be read before
	File   string // to be edited, from the root of the repository
	Hint   string
	Right  string // the file of this project that does it right

	lock, solution quorum
	breaks         []string // the properties that the mistake breaks, of those that are played; the main one comes first
	plays          []string
	half           map[string]int // of a half fix, the property that it breaks first: the exercise with that mistake
	reentry        bool
	servers        int
}

// These properties are played, of each kind of lock.
var (
	simple = []string{
		"Exclusive", "TryDoesNotWait", "ReleaseFrees", "NamesIndependent", "ReleaseOnlyOwn", "ReleaseAfterLoss", "ReleaseAtomic",
		"ExtendOnlyOwn", "ExtendAtomic", "Expires", "DeadlineIsSafe", "FailedTryChangesNothing", "ExtendRestarts", "ExtendNeverRecreates", "NoDeadlock", "ClockAhead", "ClockBehind",
	}
	reentrant = append(slices.Clone(simple), "Reentry", "ReentryLastRelease", "ReentryReleaseOnce")
	voted     = []string{
		"Exclusive", "ReleaseFrees", "NamesIndependent", "ReleaseOnlyOwn", "ReleaseAfterLoss", "ExtendOnlyOwn", "Expires",
		"DeadlineFromRequest", "QuorumNeeded", "MinorityDown", "FailedAttemptLeavesNothing", "ReleaseEverywhere",
	}
	shared = []string{"Exclusive", "ReleaseFrees", "NamesIndependent", "Expires", "NoDeadlock", "ClockAhead", "PermitsBound", "PermitsOnlyOwn"}
)

// All returns the exercises in order.
func All() []Exercise {
	all := []Exercise{
		{
			Title: "For ever", Lesson: 1, File: "01_no_ttl.go", lock: single{locks.NoTTL{}}, solution: single{solutions.NoTTL{}},
			breaks: []string{"Expires", "NoDeadlock"}, half: map[string]int{"NoDeadlock": 2},
			Hint:  "The holder cannot release when it is dead. Who is left that can?",
			Right: "setnxpx/setnxpx.go",
		},
		{
			Title: "Between two commands", Lesson: 2, File: "02_two_commands.go", lock: single{locks.TwoCommands{}}, solution: single{solutions.TwoCommands{}},
			breaks: []string{"NoDeadlock"},
			Hint:   "What does Redis hold if the client dies after its first command? Redis can do both in one: read about the options of SET.",
			Right:  "setnxpx/setnxpx.go",
		},
		{
			Title: "Whose clock?", Lesson: 5, File: "03_own_clock.go", lock: single{locks.OwnClock{}}, solution: single{solutions.OwnClock{}},
			breaks: []string{"ClockAhead", "ClockBehind"},
			Hint:   "c.Now is another time at each client. Which clock is the same for all of them?",
			Right:  "setnxpx/setnxpx.go",
		},
		{
			Title: "Whose lock?", Lesson: 7, File: "04_blind_delete.go", lock: single{locks.BlindDelete{}}, solution: single{solutions.BlindDelete{}},
			breaks: []string{"ReleaseOnlyOwn", "ReleaseAfterLoss", "ReleaseAtomic"}, half: map[string]int{"ReleaseAtomic": 6},
			Hint:  "What does the key hold when a late holder deletes it? Package redis of the exercises has a script that looks first.",
			Right: "luascript/release.lua",
		},
		{
			Title: "One token for all", Lesson: 7, File: "05_shared_token.go", lock: single{locks.SharedToken{}}, solution: single{solutions.SharedToken{}},
			breaks: []string{"ReleaseOnlyOwn", "ReleaseAfterLoss", "ReleaseAtomic", "ExtendOnlyOwn", "ExtendAtomic", "FailedTryChangesNothing"},
			Hint:   "Two clients run on the same machine. What does each find when it compares?",
			Right:  "internal/token/token.go",
		},
		{
			Title: "Look, then delete", Lesson: 8, File: "06_look_then_delete.go", lock: single{locks.LookThenDelete{}}, solution: single{solutions.LookThenDelete{}},
			breaks: []string{"ReleaseAtomic"},
			Hint:   "How old is the answer to GET when DEL arrives? No order of these two commands will do.",
			Right:  "luascript/release.lua",
		},
		{
			Title: "A watchdog that does not look", Lesson: 10, File: "07_blind_renewal.go", lock: single{locks.BlindRenewal{}}, solution: single{solutions.BlindRenewal{}},
			breaks: []string{"ExtendOnlyOwn", "ExtendAtomic", "FailedTryChangesNothing"}, half: map[string]int{"ExtendAtomic": 6},
			Hint:  "Whose lock lasts longer after the PEXPIRE of a client that has lost it?",
			Right: "luascript/extend.lua",
		},
		{
			Title: "Counted twice", Lesson: 12, File: "08_count_twice.go", lock: single{locks.CountTwice{}}, solution: single{solutions.CountTwice{}},
			breaks: []string{"ReentryReleaseOnce"}, plays: reentrant, reentry: true,
			Hint:  "A number does not remember who has counted. What would the hash need, so that the second release of the same hold finds nothing to do?",
			Right: "reentrant/release.lua",
		},
		{
			Title: "Slow votes", Lesson: 15, File: "09_forgets_elapsed.go", lock: locks.ForgetsElapsed{}, solution: solutions.ForgetsElapsed{},
			breaks: []string{"DeadlineFromRequest"}, plays: voted, servers: 5,
			Hint:  "When did the first server begin to count the TTL, and when does the client? Clocks also run a little apart.",
			Right: "redlock/redlock.go",
		},
		{
			Title: "Votes that nobody gives back", Lesson: 20, File: "10_voters_only.go", lock: locks.VotersOnly{}, solution: solutions.VotersOnly{},
			breaks: []string{"ReleaseEverywhere"}, plays: voted, servers: 5,
			Hint:  "A server has voted, and its answer was lost. What does the client believe of it?",
			Right: "redlock/redlock.go",
		},
		{
			Title: "Permits that do not come back", Lesson: 25, File: "11_counter.go", lock: single{locks.Counter{}}, solution: single{solutions.Counter{}},
			breaks: []string{"Expires", "NoDeadlock", "PermitsOnlyOwn"}, plays: shared,
			Hint:  "Who counts down for a holder that is dead? Keep the holders, each with its end, and not their number: a sorted set can.",
			Right: "semaphore/permits.lua",
		},
	}
	for i := range all {
		e := &all[i]
		e.Number, e.File, e.servers = i+1, "lab/exercises/locks/"+e.File, max(e.servers, 1)
		if e.plays == nil {
			e.plays = simple
		}
	}
	return all
}

// Advice is the hint for the first promise that is broken, and the lesson to read.
func (e Exercise) Advice(v Judgement) (hint string, lesson int) {
	if n := e.half[v.Broken.Title]; n > 0 {
		e = All()[n-1]
	}
	return e.Hint, e.Lesson
}

//go:embed solutions/*.go
var sources embed.FS

// Solution is the text of what changes.
func (e Exercise) Solution() (string, error) {
	text, err := sources.ReadFile("solutions/" + path.Base(e.File))
	return string(text), err
}

// A Judgement says what became of each property.
type Judgement struct {
	Results []conformance.Result // of each property that was played, in the order of the suite
	Broken  *lessons.Trace       // what happened in the trial of the first that is broken; nil: none is
}

// Solved reports whether the lock keeps all that was played.
func (v Judgement) Solved() bool {
	return !slices.ContainsFunc(v.Results, func(r conformance.Result) bool { return r.Status != conformance.Kept })
}

// Judge plays the exercise's properties on its lock, as it stands in its file.
func (e Exercise) Judge(ctx context.Context, farm *redistest.Farm) (Judgement, error) {
	return e.judge(ctx, farm, e.lock)
}

func (e Exercise) judge(ctx context.Context, farm *redistest.Farm, l quorum) (v Judgement, err error) {
	servers, err := farm.Nodes(ctx, e.servers)
	if err != nil {
		return v, err
	}
	properties := slices.DeleteFunc(conformance.Properties(), func(p conformance.Property) bool { return !slices.Contains(e.plays, p.Name) })
	v.Results = make([]conformance.Result, len(properties))
	recorders := make([]*recorder, len(properties))
	var trials sync.WaitGroup // most of their time they wait
	for i, p := range properties {
		recorders[i] = newRecorder()
		for k, s := range servers {
			recorders[i].names[s.Addr()] = e.names()[k]
		}
		trials.Go(func() { v.Results[i] = conformance.Check(ctx, e.subject(l, servers, recorders[i]), p) })
	}
	trials.Wait()
	if i := slices.IndexFunc(v.Results, func(r conformance.Result) bool { return r.Status == conformance.Broken }); i >= 0 {
		t := recorders[i].trace(v.Results[i], e.names())
		v.Broken = &t
	}
	return v, ctx.Err()
}

// names are the servers' in diagrams.
func (e Exercise) names() []string {
	if e.servers == 1 {
		return []string{"redis"}
	}
	var names []string
	for i := range e.servers {
		names = append(names, fmt.Sprintf("n%d", i+1))
	}
	return names
}

// subject is a lock for one trial.
func (e Exercise) subject(l quorum, servers []*redistest.Server, r *recorder) conformance.Subject {
	open := func(o strategy.Options, ahead time.Duration, permits int, around func(i int, n driver.Node) driver.Node) (engine.Strategy, error) {
		p := protocol{lock: l, ahead: ahead, permits: permits, reentry: e.reentry, tells: r.claims()}
		for i, s := range servers {
			p.nodes = append(p.nodes, around(i, r.node(locktest.Nodes(s.Pool())[0], e.names()[i])))
		}
		return engine.New(p, o)
	}
	plain := func(_ int, n driver.Node) driver.Node { return n }
	s := conformance.Subject{
		Name: e.File, Nodes: e.servers, Reentrant: e.reentry, Patience: 3 * time.Second, Opens: r.opens, Observe: r.observe,
		Open: func(o strategy.Options) (strategy.Strategy, error) { return open(o, 0, 1, plain) },
		OpenGated: func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
			return open(o, 0, 1, func(_ int, n driver.Node) driver.Node { return conformance.GateNode(n, g) })
		},
		OpenSkewed: func(o strategy.Options, ahead time.Duration) (strategy.Strategy, error) {
			return open(o, ahead, 1, plain)
		},
		OpenNodes: func(o strategy.Options, gates []conformance.Gate) (strategy.Strategy, error) {
			return open(o, 0, 1, func(i int, n driver.Node) driver.Node { return conformance.GateNode(n, gates[i]) })
		},
		OpenPermits: func(permits int, o strategy.Options) (strategy.Semaphore, error) {
			s, err := open(o, 0, permits, plain)
			return semaphore{s}, err
		},
		Evict: func(ctx context.Context, key string) error {
			for _, s := range servers {
				c, err := s.Pool().GetContext(ctx)
				if err == nil {
					_, err = c.Do("DEL", key)
					c.Close() //nolint:errcheck // what matters has been answered
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	return s
}
