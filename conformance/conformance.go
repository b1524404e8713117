// Package conformance is the suite that every lock of this module passes, for your
// locks too: it shows what a [driver.Protocol], run by package engine,
// guarantees and what it does not.
//
// # Run it on your own protocol
//
// Describe the lock with a [Subject] and hand it to [Run]. Only Name and Open are
// required; every hook that you add lets the suite look at more:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Subject{
//			Name: "mylock",
//			Open: func(o strategy.Options) (strategy.Strategy, error) {
//				return engine.New(mylock.On(address), o)
//			},
//		})
//	}
//
// Each property is a subtest with a sentence that says what it demands
// ([Properties] lists them, in the order in which to learn them). A failure says
// what was observed and what was wanted, with the history of the trial:
//
//	B.TryAcquire() = <nil>, want ErrHeld: A holds the lock
//	history:
//	      10µs  A.TryAcquire() = <nil>
//	      40µs  B.TryAcquire() = <nil>
//
// # Weaknesses
//
// A lock may be weak on purpose. Its Subject says so in Except, with the reason.
// Then the suite shows the weakness, with its history, instead of failing. It fails
// if the lock does not have the weakness. So the suite checks every claim, and the
// list of exceptions cannot go stale.
//
// # Slow machines
//
// A trial measures by how much this process's own timers are late. If that, or a TTL that ended too
// early for the script, may be why it failed, the suite repeats the trial with TTLs that are four times
// as long: three trials in all. In the last one it also measures how long the servers take for what is not
// the lock's doing: for an Evict of a key that does not exist. If timers or servers were more than 100 ms late
// in that trial, the suite skips the property as INCONCLUSIVE. Otherwise the lock was slow, and that is a failure.
//
// # Several holders
//
// A lock that several may hold is also a lock for one: Open makes a semaphore of one permit, or a lock to read and
// to write, of which the suite uses the writers alone. With OpenPermits, or OpenRW, the suite judges what several holders
// may rely on.
//
// # Several servers
//
// A lock that lives on several independent servers, of which a majority decides, says
// so in Nodes, and gives the suite OpenNodes. Then each contender gets a network of its
// own, in which the suite loses, delays and freezes servers, and judges the quorum
// properties. They are black box: the suite looks at nothing but what contenders get.
//
// # Several processes
//
// Some trials start this test binary again, to have contenders in processes of their
// own. They need Subject.ChildEnv, by which a child finds the same servers, and that
// a child comes to the same call of Run.
//
// # From a program
//
// [Check] judges one property without package testing, for tables of guarantees.
// Its trials use lock names that nobody else uses, so it may run on a shared server.
// The program's main calls [Child] first, so that it can be its own child.
//
// Package lockstest has a protocol in memory for unit tests; the suite holds it to the same properties.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/child"
	"github.com/lockstrategies/locks/strategy"
)

// A Subject is the lock under test: how to get at it, and what it claims. Hooks are
// called from several goroutines at once; key is the servers' name of a lock
// ([strategy.DefaultKey] of its name).
type Subject struct {
	// Name is the subject's, for reports. Required.
	Name string

	// Open makes a contender as independent of earlier ones as another process
	// would be, on the same servers. The suite closes it. Required.
	Open func(strategy.Options) (strategy.Strategy, error)

	// OpenGated is Open, with every request to the servers passing the gate: see
	// [GateNode]. It lets the suite step in between two requests of one call, so
	// that races are shown and not waited for. A gate may hold a request up until its
	// caller is gone: it must still take effect then, as with a server that was frozen
	// and thaws. Otherwise the properties of late requests prove nothing.
	OpenGated func(strategy.Options, Gate) (strategy.Strategy, error)

	// OpenSkewed is Open, with the contender's wall clock put forward by that much (back,
	// if negative). For an algorithm that takes no clock from its contenders it is Open.
	OpenSkewed func(o strategy.Options, ahead time.Duration) (strategy.Strategy, error)

	// OpenPermits is Open for a lock of so many permits, each of which is a share of it: see
	// [strategy.Semaphore]. Contenders of one lock may be opened with different numbers.
	OpenPermits func(permits int, o strategy.Options) (strategy.Semaphore, error)

	// OpenRW is Open for a lock that many may hold to read, or one to write.
	OpenRW func(strategy.Options) (strategy.ReadWriter, error)

	// Nodes is on how many independent servers the lock lives, of which a majority has
	// to agree. 0 and 1 mean no quorum: then the quorum properties are skipped.
	Nodes int

	// Down is how many of the Nodes, the last ones, are down all the time. The suite
	// counts on the others only.
	Down int

	// OpenNodes is Open, with every request to server i passing gates[i], of which there
	// are Nodes: see [GateNode]. So each contender has a network of its own, on which
	// servers are lost, slow or frozen for it alone.
	OpenNodes func(o strategy.Options, gates []Gate) (strategy.Strategy, error)

	// OpenGround starts servers of a trial's own, of which one has a replica. The suite closes it. Nil: there
	// are none, or the lock needs no primary.
	OpenGround func(context.Context) (*Ground, error)

	// Evict takes key from its holder without a notification, as an expiry would. If expired
	// locks stay with the servers until somebody takes their place, as rows of a table
	// do, let Evict leave them there, expired: then ExtendNeverRecreates also finds an
	// Extend that revives them. (LateExtension finds it too, with OpenGated.) If key
	// holds something that is not a lock (see Spoil), it is gone. Trials also tidy up
	// with it, and measure by it how slow the servers are: it must come to the same servers by
	// connections of its own. Nil: a trial cannot tell slow servers from a slow lock.
	Evict func(ctx context.Context, key string) error

	// BreakWatches ends the servers' subscriptions for key, as the loss of their
	// connections does; those for other keys may end with them.
	BreakWatches func(ctx context.Context, key string) error

	// Forge sends a message to all who listen for key, as somebody can who may publish, and may not write. It says what n
	// says, on channels of each kind. ServerTime counts from now by the servers' clock. A Fence of 0 stands for one that the
	// servers could issue now. Nil: the suite sends none.
	Forge func(ctx context.Context, key string, n driver.Notification) error

	// Spoil puts something at key that is not a lock.
	Spoil func(ctx context.Context, key string) error

	// Leftovers names what the servers still keep of a lock that nobody holds or
	// waits for: keys, subscriptions. It leaves out a key that must outlive the lock
	// (a fence counter that expires).
	Leftovers func(ctx context.Context, key string) ([]string, error)

	// ChildEnv is added to the environment of child processes, so that Open
	// reaches the same servers there. Nil means that it cannot: the lock lives in
	// this process.
	ChildEnv []string

	// ChildArgs is what this program is started with to become a child: its main
	// calls [Child] first. Nil means that it does not. Run fills it in.
	ChildArgs []string

	// Reentrant: the owner of a lock gets in again. Checked either way.
	Reentrant bool

	// Fenced: every hold has a fence. Checked either way.
	Fenced bool

	// Fair: contenders of several processes are served in the order in which they
	// came. (Those of one process always are.)
	Fair bool

	// Except maps the names of properties that this lock is known to lack to the
	// reasons. Only scripted properties can be excepted.
	Except map[string]string

	// TTL is the shortest TTL that the lock can have, if that is longer than 300 ms. All other TTLs of the trials are multiples of
	// it, or of a second. Trials that live through an expiry take longer then.
	TTL time.Duration

	// Patience is how long a trial waits for what must happen some time. 0: 20 s. Where TTLs are longer, it is, too.
	Patience time.Duration

	// Opens is called before a contender is opened, with its name in the history; Observe with each event of the
	// history, as it happens. So a program can draw a trial together with what it knows itself. nil: nobody looks.
	Opens   func(who string)
	Observe func(Event)
}

// A Property is one thing that a lock guarantees.
type Property struct {
	Name   string
	Group  string // "exclusion", "ownership" …
	Clause string // what is guaranteed, in one sentence

	// Scripted: the trial is played by script and ends the same way each time, so
	// that a lack of the property can be shown. Others look for it by chance.
	Scripted bool

	// Alone: the trial looks at the whole process, so nothing else may go on
	// there meanwhile. Run sees to it, unless the test that calls it is parallel.
	Alone bool

	check func(*trial)
}

// Properties returns all properties in teaching order.
func Properties() []Property {
	return slices.Concat(exclusion(), ownership(), expiry(), racing(), clocks(), waiting(), queueing(), forging(), renewal(), noAnswer(), handingOver(), moving(), fencing(), reentering(), sharing(), readingAndWriting(), quorum(), input(), closing())
}

// inGroup is those properties.
func inGroup(group string, all ...Property) []Property {
	for i := range all {
		all[i].Group = group
	}
	return all
}

func scripted(name, clause string, check func(*trial)) Property {
	return Property{Name: name, Clause: clause, Scripted: true, check: check}
}

func byChance(name, clause string, check func(*trial)) Property {
	return Property{Name: name, Clause: clause, check: check}
}

func alone(p Property) Property {
	p.Alone = true
	return p
}

// A Status is what became of a property.
type Status int

const (
	// Kept: the trial found nothing against it.
	Kept Status = iota + 1
	// Broken: the trial showed the opposite, or could not be held though the machine was on time.
	Broken
	// Excused: the trial showed the opposite, as Subject.Except says.
	Excused
	// Skipped: the subject lacks what the trial needs, or the machine was so late, each time that
	// the trial was held, that nothing can be said: then the reason begins with INCONCLUSIVE.
	Skipped
)

func (s Status) String() string {
	switch s {
	case Kept:
		return "kept"
	case Broken:
		return "broken"
	case Excused:
		return "excused"
	case Skipped:
		return "skipped"
	}
	return fmt.Sprintf("Status(%d)", int(s))
}

// A Result is the outcome of one property's trial.
type Result struct {
	Property Property
	Status   Status
	Reason   string // Excused: the exception's; Skipped: what is missing, or INCONCLUSIVE and why
	Err      error  // Broken, Excused: what was observed, and what was wanted
	History  History
	Took     time.Duration
}

// String says it all, in several lines.
func (r Result) String() string {
	var b strings.Builder
	switch r.Status {
	case Kept:
		fmt.Fprintf(&b, "kept: %s", r.Property.Clause)
	case Skipped:
		fmt.Fprintf(&b, "skipped: %s", r.Reason)
	case Excused:
		fmt.Fprintf(&b, "known exception, confirmed: %s\nclause: %s\nobserved: %v", r.Reason, r.Property.Clause, r.Err)
	default:
		fmt.Fprintf(&b, "%v\nclause: %s", r.Err, r.Property.Clause)
	}
	if len(r.History) > 0 && (r.Status == Broken || r.Status == Excused) {
		fmt.Fprintf(&b, "\nhistory:\n%v", r.History)
	}
	return b.String()
}

// Check holds one trial of p on s. ctx bounds it. A trial in which nothing happens
// for a minute is ended, and the Result says where its goroutines stood. A trial that was too slow to
// prove anything is held again with longer TTLs.
func Check(ctx context.Context, s Subject, p Property) Result {
	return check(ctx, s, p, usual)
}

type limits struct {
	patience time.Duration // for what must happen some time
	watchdog time.Duration // for the trial
}

var usual = limits{patience: 20 * time.Second, watchdog: time.Minute}

func check(ctx context.Context, s Subject, p Property, limits limits) Result {
	began := time.Now()
	r := Result{Property: p}
	if err := s.validate(); err != nil {
		r.Status, r.Err = Broken, err
		return r
	}
	reason, excepted := s.Except[p.Name]
	end := holdTrial(ctx, s, p, limits)
	r.History, r.Took = end.history, time.Since(began)
	switch {
	case end.skip != "" && excepted && !end.late:
		r.Status, r.Err = Broken, fmt.Errorf("is listed in Except (%q), but cannot be judged: %s", reason, end.skip)
	case end.skip != "":
		r.Status, r.Reason = Skipped, end.skip
	case end.err == nil && excepted:
		r.Status, r.Err = Broken, fmt.Errorf("holds, but is listed in Except (%q): delete the exception", reason)
	case end.err == nil:
		r.Status = Kept
	case excepted && end.shown:
		r.Status, r.Reason, r.Err = Excused, reason, end.err
	default:
		r.Status, r.Err = Broken, end.err
	}
	return r
}

// validate says what is wrong with the subject itself.
func (s Subject) validate() error {
	if s.Name == "" || s.Open == nil {
		return errors.New("conformance: a Subject needs Name and Open")
	}
	if s.Nodes < 0 || s.Down < 0 || s.Down > 0 && s.Nodes-s.Down < majority(s.Nodes) {
		return fmt.Errorf("conformance: Subject.Nodes is %d, of which %d are down: allowed is what leaves a majority", s.Nodes, s.Down)
	}
	properties := Properties()
	for name := range s.Except {
		i := slices.IndexFunc(properties, func(p Property) bool { return p.Name == name })
		if i < 0 {
			return fmt.Errorf("conformance: Subject.Except names %q: there is no such property", name)
		}
		if !properties[i].Scripted {
			return fmt.Errorf("conformance: Subject.Except names %q: only scripted properties can be excepted, because only they show a weakness each time", name)
		}
	}
	return nil
}

// Run checks all properties on s, each in a subtest of its own, named
// <Subject.Name>/<Property.Name>. For trials with several processes it runs this
// test binary again; the test that calls Run must then come to the same call.
func Run(t *testing.T, s Subject) {
	t.Helper()
	t.Run(s.Name, func(t *testing.T) {
		if j, ok := child.JobOf[job](role); ok {
			if j.Subject != s.Name {
				return
			}
			if err := child.Work(j, s.work); err != nil {
				t.Fatal(err)
			}
			return
		}
		if err := s.validate(); err != nil {
			t.Fatal(err)
		}
		if s.ChildArgs == nil {
			s.ChildArgs = testArgs(t.Name())
		}
		slots := make(chan struct{}, together)
		trial := func(p Property) {
			t.Run(p.Name, func(t *testing.T) {
				result := make(chan Result, 1)
				go func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					result <- Check(t.Context(), s, p)
				}()
				if !p.Alone {
					t.Parallel() // the next begins; go test -parallel limits only who looks at results
				}
				r := <-result
				t.Logf("took %v", r.Took.Round(time.Millisecond)) // the test's own time is that of looking
				switch r.Status {
				case Kept:
					t.Log(r)
				case Broken:
					t.Error(r)
				default:
					t.Skip(r)
				}
			})
		}
		for _, alone := range []bool{true, false} {
			for _, p := range Properties() {
				if p.Alone == alone {
					trial(p)
				}
			}
		}
	})
}

// together is how many trials of one Run go on at once: most of their time they wait.
const together = 8
