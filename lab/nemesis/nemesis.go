// Package nemesis lets processes contend for locks while servers, networks and the
// processes themselves are broken at random, and judges what came of it.
//
// What is broken, and when, is a function of a seed: a run that failed is run again with
// it, though no two runs are the same, since machines are not. Package history
// judges from the clients' histories alone, by what each holder believed, whether a lock
// kept its guarantees.
package nemesis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/lab/wait"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/strategy"
)

// A Config is one run.
type Config struct {
	Variant subjects.Variant // what the contenders' processes know by this name
	Seed    uint64
	For     time.Duration // in all, the calm at the end included; more than that
	Faults  []string      // kinds; nil: those that the strategy claims to survive, see Survived
	Plan    []Track       // nil: what the seed decides

	// Calm is how long nothing is broken at the end. Only if it is longer than a lock may
	// be out of reach does it show that none got stuck. Default [Calm].
	Calm time.Duration

	// Permits is how many the lock has, if several may hold it at a time. ReadWrite: many may hold it to read, or
	// one to write.
	Permits   int
	ReadWrite bool

	// Overstay is the chance, 1 in so many, that a holder stays until it has lost the
	// lock: nothing else uses a lease to its end. The chance that it keeps the lock alive for a TTL is the same, but 1 in 200 at most.
	// Default 120; it costs throughput.
	Overstay int

	// Workers is how many there are in each process, default 3; and Try the chance, 1 in so many, that one asks
	// once and does not wait, default 6.
	Workers, Try int

	// Plain: nobody adopts a lock, and all of a process have the same options.
	Plain bool

	// Dense is how many times as much is broken at ways and clients at a time, after pauses that are as much shorter. Default 1.
	Dense int

	// TTL and OpTimeout are those of the locks, default 600 and 200 ms: as short as a machine can be trusted with that has five
	// processes on each of its cores. The lengths of faults go by the TTL, too. Bound is how long somebody may try to get a lock that nobody
	// holds, while nothing is broken, default TTL and 3 s.
	TTL, OpTimeout, Bound time.Duration

	// Think is the longest time for which a worker holds a lock, usually, and then pauses. Default 3 ms.
	Think time.Duration
}

// Strategies are all of the module, and what of a semaphore and of a read-write lock several hold at a time.
func Strategies() (all []Config) {
	for _, v := range subjects.All() {
		if v.Dead == 0 {
			all = append(all, Config{Variant: v})
		}
		switch shared := v; v.Name {
		case "semaphore":
			shared.Name, shared.Summary = "semaphore-3", "a semaphore of three permits"
			shared.On = func(nodes []driver.Node) driver.Protocol { return semaphore.On(nodes[0], 3) }
			all = append(all, Config{Variant: shared, Permits: 3})
		case "rwlock":
			shared.Name, shared.Summary = "rwlock-readers", "a read-write lock that nine in ten hold to read"
			all = append(all, Config{Variant: shared, ReadWrite: true})
		}
	}
	return all
}

// What the contenders do is the same for all: few locks, and short holds.
const (
	Processes = 5
	workers   = 3 // in each
	locks     = 3
	think     = 3 * time.Millisecond

	ttl       = 600 * time.Millisecond
	opTimeout = 200 * time.Millisecond

	Calm = 5 * time.Second

	// linger is how long a server that nothing hinders may keep what has lapsed: the
	// machine's hiccups.
	linger = time.Second

	prompt     = time.Second // until somebody gets a lock of which nothing is left
	overtakers = 120         // of other processes, for each permit: see history.Rules
)

// filled has the defaults in place.
func (c Config) filled() Config {
	c.Calm, c.TTL, c.OpTimeout = cmp.Or(c.Calm, Calm), cmp.Or(c.TTL, ttl), cmp.Or(c.OpTimeout, opTimeout)
	c.Bound = cmp.Or(c.Bound, c.TTL+3*time.Second)
	return c
}

// workload is what each process does: mostly short holds, and some of each other kind.
func workload(c Config, seed uint64, client int) contender.Workload {
	w := contender.Workload{
		Workers: cmp.Or(c.Workers, workers), Seed: seed + uint64(client)<<32,
		Patience: time.Second + c.TTL - ttl, Think: cmp.Or(c.Think, think), Rest: cmp.Or(c.Think, think),
		Try: cmp.Or(c.Try, 6), Renew: 8, Keep: max(200, c.Overstay), Cap: 2, Overstay: cmp.Or(c.Overstay, 120),
	}
	if !c.Plain {
		w.Adopt, w.Other = 30, 9
	}
	if c.Variant.Reentrant { // elsewhere it would wait for itself
		w.Reenter = 6
	}
	if c.Permits > 1 {
		w.Permits, w.Heavy = c.Permits, 4
	}
	if c.ReadWrite {
		w.ReadWrite, w.Write, w.Downgrade = true, 10, 4
	}
	w.Locks = c.Locks()
	return w
}

// Locks are the names of the locks that are contended for.
func (c Config) Locks() (names []string) {
	for i := range locks {
		names = append(names, fmt.Sprintf("nemesis %d", i+1))
	}
	return names
}

// wayOf is how the contenders of a process wait for locks: in every second run as is best,
// in the others each process in a way of its own, of those that the strategy has.
func wayOf(c Config, client int) (w strategy.Wait, noHandOver bool) {
	chance := rand.New(rand.NewPCG(c.Seed, uint64(client)))
	switch way := chance.IntN(4); {
	case c.Seed%2 == 0:
		return strategy.WaitBest, false
	case way == 0:
		return strategy.WaitPoll, false
	case way == 1 && (c.Variant.Package == "fairqueue" || c.Variant.Package == "postgres" || sharing(c.Variant)):
		return strategy.WaitNotification, false
	case way == 2:
		return strategy.WaitBest, true
	}
	return strategy.WaitBest, false
}

// sharing reports whether a lock is a sorted set of holds, of which there may be several.
func sharing(v subjects.Variant) bool { return v.Package == "semaphore" || v.Package == "rwlock" }

// A Ground has what is broken in a run: servers, networks and processes.
type Ground interface {
	// Open makes servers for the strategy, and what the locks protect: its address is Setup.Store.
	Open(ctx context.Context, c Config) (servers []Server, store string, err error)
	// Ways are new networks to the servers, of one process at a time.
	Ways() []Way
	// Start starts a process, which has these networks.
	Start(ctx context.Context, ways []Way, s contender.Setup) (Process, error)
	Close() error
}

// A Server is what [rig.Node] is, whose words these are.
type Server interface {
	Freeze(context.Context) error
	Thaw(context.Context) error
	Kill(context.Context) error
	Restart(context.Context) error
	FlushAll(context.Context) error
	FlushScripts(context.Context) error
	JumpClock(ctx context.Context, by time.Duration) error
	FillMemory(context.Context) error
	FreeMemory(context.Context) error
	ReadOnly(context.Context) error
	Writable(context.Context) error
	Replicate(context.Context) error
	HandOver(context.Context) error
	KillClients(context.Context) error
	Deny(ctx context.Context, commands ...string) error
	Allow(context.Context) error
}

// A Way is what [rig.Link] is, whose words these are.
type Way interface {
	Hold(rig.Direction)
	Cut(rig.Direction)
	Delay(rig.Direction, time.Duration)
	Reset()
	Refuse()
	Heal()
	Close()
}

// A Process is a contender that can be broken.
type Process interface {
	Work(ctx context.Context, w contender.Workload) error
	Rest(ctx context.Context) error
	Pause(ctx context.Context) error
	Thaw() error
	Kill() error
	Close() error
	Ops() ([]history.Op, error)
}

// arena is a run under way.
type arena struct {
	Config
	ground  Ground
	servers []Server
	store   string
	seats   []*seat
	faults  *history.Recorder
	states  []slot // of servers
}

// A slot is held by one fault at a time. Other than a mutex it lets virtual time go on meanwhile.
type slot chan struct{}

func newSlots(n int) []slot {
	all := make([]slot, n)
	for i := range all {
		all[i] = make(slot, 1)
	}
	return all
}

// A seat is where one process works until it is killed, and then the next one.
type seat struct {
	number int
	ways   []Way  // to each server
	states []slot // theirs
	client slot

	now  Process
	born int // how many there have been
	ops  []history.Op
}

// Run lets contenders and faults loose on a ground. The error says
// that the run itself came to grief; what the locks did wrong is in the report.
func Run(ctx context.Context, g Ground, c Config) (_ *Report, err error) {
	c = c.filled()
	if c.For <= c.Calm {
		return nil, fmt.Errorf("nemesis: a run of %v, the last %v of them calm: allowed are more than that", c.For, c.Calm)
	}
	if c.Faults == nil {
		c.Faults = Survived(c.Variant)
	}
	plan := c.Plan
	if plan == nil {
		if plan, err = Plan(c); err != nil {
			return nil, err
		}
	}
	began := history.Now()
	a := &arena{Config: c, ground: g, faults: history.NewRecorder(nil), states: newSlots(c.Variant.Servers)}
	defer func() { err = errors.Join(err, a.leave()) }()
	if a.servers, a.store, err = g.Open(ctx, c); err != nil {
		return nil, err
	}
	for i := range Processes {
		a.seats = append(a.seats, &seat{number: i + 1, ways: g.Ways(), states: newSlots(c.Variant.Servers), client: make(slot, 1)})
	}
	if err := a.each(func(s *seat) error { return s.begin(ctx, a) }); err != nil {
		return nil, err
	}
	stop := func() {}
	if p, ok := g.(Pinger); ok {
		stop = a.watch(ctx, p)
	}
	defer func() { stop() }()
	storm, cancel := context.WithTimeout(ctx, c.For-c.Calm)
	defer cancel()
	if err := a.unleash(storm, plan); err != nil {
		return nil, err
	}
	select {
	case <-time.After(c.Calm):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := a.rest(ctx); err != nil {
		return nil, err
	}
	stop()
	ops := [][]history.Op{a.faults.Ops()}
	for _, s := range a.seats {
		ops = append(ops, s.ops)
	}
	_, watched := g.(Pinger)
	return judge(c, since(began, history.Merge(ops...)), !watched), nil
}

// since has the times of a history count from the run's beginning, for those who read it.
func since(began time.Duration, ops []history.Op) []history.Op {
	for i := range ops {
		op := &ops[i]
		op.Start -= began
		if op.End != history.Forever {
			op.End -= began
		}
		if op.Deadline != 0 {
			op.Deadline -= began
		}
	}
	return ops
}

// A Pinger is a Ground whose machine may be too slow for what is judged. Ping asks a server, from 0, for what takes a
// millisecond.
type Pinger interface {
	Ping(ctx context.Context, server int)
}

// Slow is what a history calls a time in which the machine kept whole servers and
// processes waiting: a fault of nobody's making, in which no lock has to be available.
const Slow = "slow machine"

// watch writes down when the machine is slow: when what takes a millisecond takes half of
// what a contender has patience for, or a sleep that much longer than it should.
func (a *arena) watch(ctx context.Context, p Pinger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		const nap = 20 * time.Millisecond
		for i := 0; ; i = (i + 1) % len(a.servers) {
			start := history.Now()
			awake := wait.For(ctx, nap)
			select {
			case a.states[i] <- struct{}{}: // nothing is wrong there
				if awake {
					p.Ping(ctx, i)
				}
				<-a.states[i]
			default:
			}
			if !awake {
				return
			}
			if end := history.Now(); end-start > nap+a.OpTimeout/2 {
				a.faults.Add(history.Op{Kind: history.KindFault, Value: Slow, Note: Slow, Start: start, End: end})
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// each does something with all seats, side by side.
func (a *arena) each(fn func(*seat) error) error {
	errs := make([]error, len(a.seats))
	var all sync.WaitGroup
	for i, s := range a.seats {
		all.Go(func() { errs[i] = fn(s) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// begin starts the next process at a seat, and its work. For callers that hold the seat's slot, or are alone.
func (s *seat) begin(ctx context.Context, a *arena) (err error) {
	s.born++
	setup := contender.Setup{
		Name: fmt.Sprintf("%d.%d", s.number, s.born), Variant: a.Variant.Name,
		TTL: a.TTL, OpTimeout: a.OpTimeout, RetryOnError: true, Backoff: a.TTL / 30,
	}
	if a.Permits <= 1 { // permits protect no value
		setup.Store = a.store
	}
	setup.Wait, setup.NoHandOver = wayOf(a.Config, s.number)
	if s.now, err = a.ground.Start(ctx, s.ways, setup); err != nil {
		return err
	}
	return s.now.Work(ctx, workload(a.Config, a.Seed+uint64(s.born), s.number))
}

// end takes in what the process at a seat has done.
func (s *seat) end() error {
	if s.now == nil {
		return nil
	}
	c := s.now
	s.now = nil
	err := c.Close()
	ops, opsErr := c.Ops()
	s.ops = append(s.ops, ops...)
	return errors.Join(excused(err), opsErr)
}

// excused is how a process ended, but for what it could not undo: it said so, which is its duty. One that ended otherwise
// than it should has no excuse.
func excused(err error) error {
	unsure := errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrUnsent) || errors.Is(err, strategy.ErrRefused)
	if unsure && !errors.Is(err, contender.ErrEnded) {
		return nil
	}
	return err
}

// rest ends the work, and the processes.
func (a *arena) rest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return a.each(func(s *seat) error {
		if s.now == nil {
			return nil
		}
		return errors.Join(s.now.Rest(ctx), s.end())
	})
}

// leave ends whatever is left of a run, also of one that failed.
func (a *arena) leave() error {
	err := a.each(func(s *seat) error {
		var err error
		if s.now != nil {
			err = errors.Join(s.now.Kill(), s.end())
		}
		for _, w := range s.ways {
			w.Close()
		}
		return err
	})
	return errors.Join(err, a.ground.Close())
}

// unleash goes through the plan, all tracks side by side, until ctx ends; then all that
// was broken is whole.
func (a *arena) unleash(ctx context.Context, plan []Track) error {
	errs := make([]error, len(plan))
	var all sync.WaitGroup
	for i, t := range plan {
		all.Go(func() {
			for _, s := range t {
				if !wait.For(ctx, s.Pause) {
					return
				}
				if errs[i] = a.do(ctx, s); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// do breaks something, and repairs it. The end of ctx does not stop the repair.
func (a *arena) do(ctx context.Context, s Step) error {
	k := kinds[s.Fault]
	target, client := a.target(s)
	select {
	case target <- struct{}{}:
		defer func() { <-target }()
	case <-ctx.Done():
		return nil
	}
	lasting := context.WithoutCancel(ctx)
	op := a.faults.Begin(history.Op{Kind: history.KindFault, Value: s.Fault, Note: s.String(), Client: client})
	defer func() { a.faults.End(op) }()
	err := k.begin(lasting, a, s)
	if err == nil && k.end != nil {
		wait.For(ctx, s.For)
		err = k.end(lasting, a, s)
	}
	if err == nil && k.guarded && a.Variant.Guarded {
		wait.For(ctx, a.TTL+a.TTL/10) // it does not vote: it is as good as broken
	}
	if err != nil {
		return fmt.Errorf("nemesis: %s: %w", s, err)
	}
	return nil
}

// target is what a step breaks, one step at a time, and which client is hit.
func (a *arena) target(s Step) (target slot, client string) {
	client = fmt.Sprint(s.Client + 1)
	switch kinds[s.Fault].place {
	case atServer:
		return a.states[s.Server], ""
	case atWay:
		return a.seats[s.Client].states[s.Server], client
	}
	return a.seats[s.Client].client, client
}
