package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// Units of what a contestant failed to do.
const (
	stuck  = "stuck"  // it made no progress, and was given up
	failed = "failed" // it, or its measurement, ended with an error
)

// values are what one contestant has shown in one repetition, by unit.
type values map[string]float64

// A measure measures a contestant, once.
type measure func(ctx context.Context, b *bench, who string) (values, error)

// A scenario is one question to all contestants that it applies to.
type scenario struct {
	name, title, about string
	who                []string
	nodes              int           // how many servers it takes of its own; 0: the common one
	roundTrip          time.Duration // the round trip to each of these; 0: no link is between
	every              int           // n: it takes part in every n-th repetition; 0: in all
	measure            measure
	job                func(b *bench, who string) job // instead: what all do in turns
	turns              int                            // how many of these there are in a repetition, each of which counts as one
	columns            []column                       // in the unit of the first, two builds are compared
}

// A column is a unit, or its ratio to a base's in the same repetition.
type column struct {
	title, unit string
	over        base // nil: absolute
}

// A base is what others are divided by, repetition by repetition, and its name, which is empty if
// nothing was measured.
type base func(o *outcome, unit string) (name string, series []float64)

func over(who string) base {
	return func(o *outcome, unit string) (string, []float64) { return who, o.series(who, unit) }
}

// bestPeer is the peer with the greatest median of what is the best, or with the least.
func bestPeer(best string, greatest bool) base { return bestOf("", best, greatest) }

// bestOf is the same among the settings of one peer; empty: of all.
func bestOf(peerName, best string, greatest bool) base {
	return func(o *outcome, unit string) (string, []float64) {
		name, at := "", 0.0
		for _, who := range o.present() {
			v := summarize(o.series(who, best)).center
			if kindOf(who) == peer && strings.HasPrefix(who, peerName) && !math.IsNaN(v) && (name == "" || greatest && v > at || !greatest && v < at) {
				name, at = who, v
			}
		}
		return name, o.series(name, unit)
	}
}

// ping is the median of what all contestants have measured in the repetition, so that a burst of
// noise during one contestant's PINGs does not make its own ratio better.
func ping(o *outcome, _ string) (string, []float64) {
	s := make([]float64, o.reps())
	for i := range s {
		var seen []float64
		for _, who := range o.present() {
			if v := o.series(who, "ping-µs")[i]; !math.IsNaN(v) {
				seen = append(seen, v)
			}
		}
		s[i] = summarize(seen).center
	}
	return "PING", s
}

func known(who string) bool {
	return slices.ContainsFunc(contestants, func(c contestant) bool { return c.name == strings.TrimSuffix(who, atBefore) })
}

func kindOf(who string) kind {
	i := slices.IndexFunc(contestants, func(c contestant) bool { return c.name == strings.TrimSuffix(who, atBefore) })
	return contestants[i].kind
}

const ttl = 10 * time.Second

var (
	single = []string{"fairqueue", "fairqueue-unfenced", "luascript", "semaphore-1", "rwlock", "reentrant", "setnxpx", "setnxgetset"}
	alone  = append([]string{"redsync", "bsm", "rueidislock", "rueidislock-tuned"}, single...)
	crowd  = append([]string{
		"redsync", "redsync-10ms", "redsync-1ms", "bsm", "bsm-exponential", "bsm-1ms", "rueidislock", "rueidislock-tuned",
	}, single...)
	quorum = []string{
		"raw", "raw-all", "raw-all-again",
		"redsync", "redsync-failfast", "redlock", "redlock-unguarded", "redlock-fenced",
	}
)

// scenarios are all there are, in the order of the page.
func scenarios() []scenario {
	return slices.Concat(exclusive(), sharing(), growth())
}

// exclusive are those of locks that one holds at a time.
func exclusive() []scenario {
	return []scenario{
		{
			name: "solo", title: "One caller, one name",
			about: "One goroutine acquires and releases one lock over and over.",
			who:   append([]string{"raw", "raw-again"}, alone...),
			turns: 24,
			job: func(b *bench, who string) job {
				return job{Work: "solo", Who: who, N: 1, TTL: ttl, For: b.window(25 * time.Millisecond)}
			},
			columns: []column{
				{"p50 ÷ raw", "p50-µs", over("raw")}, {"p50 ÷ redsync", "p50-µs", over("redsync")}, {"p50 ÷ luascript", "p50-µs", over("luascript")},
				{"p50, µs", "p50-µs", nil}, {"p99, µs", "p99-µs", nil}, {"allocations", "allocs/pair", nil},
				{"requests", "requests/pair", nil}, {"server's commands", "commands/pair", nil},
			},
		},
		distinctCallers(8), distinctCallers(64), distinctCallers(256),
		{
			name: "loop-64", title: "64 waiters in one process",
			about: "64 goroutines want one lock. The holder releases at once, and asks again at once. " +
				"A waiter who has not got the lock when the time is up counts with the time that it has waited so far.",
			who:     crowd,
			measure: measureLoop(1, 64, 0),
			columns: contended(),
		},
		{
			name: "loop-64-redlock", title: "64 waiters in one process, five servers",
			about:   "As with one server.",
			who:     []string{"redsync", "redsync-1ms", "redsync-failfast", "redlock", "redlock-unguarded"},
			nodes:   5,
			measure: measureLoop(1, 64, 0),
			columns: []column{
				{"acq/s ÷ fastest redsync", "acq/s", bestOf("redsync", "acq/s", true)}, {"acq/s", "acq/s", nil},
				{"Jain", "jain", nil}, {"max/min", "max/min", nil}, {"p99, ms", "p99-ms", nil}, {"requests", "requests/acq", nil},
			},
		},
		{
			name: "drain-256", title: "256 waiters once each",
			about:   "256 goroutines wait for one lock. It is released, and the time runs until each of them has had it once (20 s at most). PING is the median round trip that all contestants of the repetition measured before they began.",
			who:     crowd,
			measure: measureDrain(256),
			columns: []column{
				{"PINGs per waiter", "µs/waiter", ping}, {"µs per waiter ÷ best peer", "µs/waiter", bestPeer("µs/waiter", false)},
				{"µs per waiter", "µs/waiter", nil}, {"PING, µs", "ping-µs", nil}, {"requests", "requests/acq", nil}, {"server's commands", "commands/acq", nil},
			},
		},
		{
			name: "handoff", title: "From one process to another",
			about: "Two processes of 32 waiters want one lock. Each waiter holds it for 1 ms, releases, and waits until another has it. " +
				"Counted are hand-offs that cross processes: from the call of the release to the return of the other's acquire, by one clock. " +
				"Overlaps are grants before the holder called its release: none is allowed.",
			who:     crowd,
			measure: measureLoop(2, 32, time.Millisecond),
			columns: []column{
				{"p50 ÷ PING", "p50-µs", ping}, {"p50, µs", "p50-µs", nil}, {"PING, µs", "ping-µs", nil}, {"crossing", "crossing/acq", nil}, {"overlaps", "overlaps", nil},
				{"share, %", "share-%", nil}, {"requests", "requests/acq", nil}, {"server's commands", "commands/acq", nil},
			},
		},
		{
			name: "processes-loop", title: "Two processes of 32 waiters",
			about:   "As with 64 waiters in one process.",
			who:     crowd,
			measure: measureLoop(2, 32, 0),
			columns: append(contended(), column{"share, %", "share-%", nil}),
		},
		nextToRedsync("redsync", "as it comes: it asks again after 50 to 250 ms"),
		nextToRedsync("redsync-1ms", "with a pause of 1 ms between tries"),
		{
			name: "renewal", title: "10 000 locks kept alive",
			about: "One process holds 10 000 locks with a TTL of 5 s, and keeps them alive. After one and a third TTL, one TTL is measured. Ours use KeepAlive, redsync and bsm a goroutine " +
				"for each lock that extends it every third of the TTL; rueidislock extends by itself, every half of it. CPU is the process's and the server's. " +
				"Lost are locks that their holder knows to be lost. Memory is heap and stacks after a collection.",
			who:     alone,
			measure: measureRenewal(10_000, 5*time.Second),
			columns: []column{
				{"CPU, %", "cpu-%", nil}, {"client CPU, %", "client-cpu-%", nil}, {"server CPU, %", "server-cpu-%", nil},
				{"goroutines/lock", "goroutines/lock", nil}, {"B/lock", "B/lock", nil}, {"requests/s", "requests/s", nil},
				{"server's commands/s", "commands/s", nil}, {"lost", "lost", nil},
			},
		},
		{
			name: "redlock", title: "RedLock on five servers",
			about: "One caller acquires and releases up to 5 000 locks, each of a new name. raw is one server. " +
				"Orphans are keys with a TTL that are left on all servers, without fence counters.",
			who: quorum, nodes: 5,
			measure: measureFresh(5, 5000, 6*time.Second),
			columns: []column{
				{"p50 ÷ raw-all", "p50-µs", over("raw-all")}, {"p50 ÷ redsync", "p50-µs", over("redsync")}, {"p50 ÷ raw", "p50-µs", over("raw")},
				{"p50, µs", "p50-µs", nil}, {"p99, µs", "p99-µs", nil}, {"pairs", "pairs", nil}, {"orphans", "orphans", nil},
			},
		},
		{
			name: "redlock-5ms", title: "RedLock, five servers 5 ms away",
			about: "The same through links that hold back every byte for 2.5 ms, in each direction.",
			who:   quorum, nodes: 5, roundTrip: 5 * time.Millisecond,
			measure: measureFresh(5, 5000, 1500*time.Millisecond),
			columns: []column{{"p50 ÷ raw", "p50-µs", over("raw")}, {"p50, µs", "p50-µs", nil}, {"p99, µs", "p99-µs", nil}},
		},
		{
			name: "redlock-frozen", title: "RedLock, one of five servers is paused",
			about: "The same, before and while one server is stopped. A contestant that makes no progress for 5 s is stuck, and is stopped. " +
				"Goroutines are the additional ones while it is paused, and a second after it goes on; ghosts are keys with a TTL that are then left on any server, without fence counters.",
			who: []string{"redsync", "redsync-failfast", "redsync-100ms-io", "redlock", "redlock-fenced"}, nodes: 5,
			measure: measureFrozen,
			columns: []column{
				{"p99 ÷ all up", "p99/up", nil}, {"p50 ÷ all up", "p50/up", nil}, {"p99, µs", "frozen-p99-µs", nil},
				{"goroutines meanwhile", "goroutines-frozen", nil}, {"and after", "goroutines-thawed", nil}, {"ghosts", "ghosts", nil},
			},
		},
	}
}

// growth is what ours cost as something grows, with a scenario for each size.
func growth() (all []scenario) {
	grow := func(name, title, about string, who []string, sizes []int, nodes int,
		of func(size int) measure, columns ...column) {
		for _, n := range sizes {
			all = append(all, scenario{
				name: fmt.Sprintf("growth-%s-%d", name, n), title: fmt.Sprintf("%s: %d", title, n), about: about, who: who, every: 2,
				nodes: nodes, measure: of(n), columns: columns,
			})
		}
	}
	grow("waiters", "More waiters", "Waiters in one process, as in the loop of 64.", single, []int{2, 8, 32, 128, 1024}, 0,
		func(n int) measure { return measureLoop(1, n, 0) },
		column{"acq/s", "acq/s", nil}, column{"requests", "requests/acq", nil})
	grow("names", "More names", "One caller goes through names that have all been used before.", single, []int{1, 10, 100, 1000, 10_000, 100_000}, 0,
		measureNames, column{"p50, µs", "p50-µs", nil})
	grow("held", "More locks held", "Locks kept alive, as with 10 000, but with a TTL of 1.5 s. CPU is the process's and the server's; what both need when idle is in it.",
		single, []int{1, 10, 100, 1000, 10_000}, 0,
		func(n int) measure { return measureRenewal(n, 1500*time.Millisecond) },
		column{"CPU, %", "cpu-%", nil}, column{"requests/s", "requests/s", nil})
	grow("nodes", "More nodes", "RedLock's acquire and release, all servers up.", []string{"raw-all", "redlock", "redlock-fenced"}, []int{1, 3, 5, 7, 9}, 9,
		func(n int) measure { return measureFresh(n, 1000, time.Second) },
		column{"p50, µs", "p50-µs", nil})
	return all
}

func distinctCallers(n int) scenario {
	return scenario{
		name: fmt.Sprintf("distinct-%d", n), title: fmt.Sprintf("%d callers, %d names", n, n),
		about: fmt.Sprintf("%d goroutines acquire and release, each a lock of its own. CPU is the processor time of the process and of the server for a pair.", n),
		who:   append([]string{"pool", "pool-again"}, alone...),
		turns: 6,
		job: func(b *bench, who string) job {
			return job{Work: "distinct", Who: who, N: n, TTL: ttl, For: b.window(75 * time.Millisecond)}
		},
		columns: []column{
			{"pairs/s ÷ pool", "pairs/s", over("pool")}, {"pairs/s", "pairs/s", nil}, {"requests", "requests/pair", nil},
			{"client CPU, µs", "client-cpu-µs/pair", nil}, {"server CPU, µs", "server-cpu-µs/pair", nil},
		},
	}
}

// nextToRedsync is about a waiter of another library, whose clients are notified of nothing.
func nextToRedsync(third, setting string) scenario {
	return scenario{
		name: "next-to-" + third, title: "Two processes of 32 waiters, and a third that uses " + third,
		about: "The third process has one waiter, which uses redsync " + setting + ". After each release it does something else for 50 ms. " +
			"The share is that of the process which got less, of what the two processes of 32 waiters got. " +
			"A wait that is not over when the time is up counts with the time so far.",
		who:     []string{"fairqueue", "luascript", "setnxpx", "setnxgetset"},
		every:   2,
		measure: measureNextTo(third),
		columns: []column{
			{"acq/s", "acq/s", nil}, {"share, %", "share-%", nil}, {"redsync's p50, ms", "third-p50-ms", nil},
			{"redsync's p99, ms", "third-p99-ms", nil}, {"redsync's acq/s", "third-acq/s", nil},
		},
	}
}

// contended are the columns of what many want.
func contended() []column {
	fastest, fairest := bestPeer("acq/s", true), bestPeer("jain", true)
	return []column{
		{"acq/s ÷ fastest peer", "acq/s", fastest}, {"acq/s ÷ fastest redsync", "acq/s", bestOf("redsync", "acq/s", true)},
		{"acq/s ÷ fairest peer", "acq/s", fairest}, {"acq/s", "acq/s", nil},
		{"Jain", "jain", nil}, {"max/min", "max/min", nil}, {"p99, ms", "p99-ms", nil}, {"p99 ÷ fairest peer", "p99-ms", fairest},
		{"requests", "requests/acq", nil}, {"server's commands", "commands/acq", nil},
	}
}

// window is how long to measure; a quick run measures a quarter of it.
func (b *bench) window(d time.Duration) time.Duration {
	if b.quick {
		return d / 4
	}
	return d
}

// perAcquisition are the counts of the reports, by acquisition.
func perAcquisition(v values, n int, rs ...report) {
	var requests, commands float64
	for _, r := range rs {
		requests += float64(r.Requests)
		commands += float64(r.Commands) / float64(len(rs)) // each has asked the same server
	}
	v["requests/acq"], v["commands/acq"] = requests/float64(max(n, 1)), commands/float64(max(n, 1))
}

func measureLoop(processes, waiters int, hold time.Duration) measure {
	return func(ctx context.Context, b *bench, who string) (v values, err error) {
		j := job{Work: "loop", Who: who, N: waiters, TTL: ttl, Hold: hold, For: b.window(800 * time.Millisecond)}
		if b.rig != nil {
			j.URLs = b.urls(len(b.rig.Nodes))
		}
		if hold > 0 {
			if j.Grants, err = sharedNumber(); err != nil {
				return nil, err
			}
			defer os.Remove(j.Grants)
		}
		jobs := make([]job, processes)
		for i := range jobs {
			jobs[i] = j
			jobs[i].Rank = i
		}
		rs, err := b.run(ctx, jobs, nil)
		if err != nil {
			return nil, err
		}
		return contention(rs), nil
	}
}

func measureNextTo(third string) measure {
	return func(ctx context.Context, b *bench, who string) (values, error) {
		j := job{Work: "loop", Who: who, N: 32, TTL: ttl, For: b.window(8 * time.Second)}
		other := j
		other.Who, other.N, other.Pause, other.AsKeys = third, 1, 50*time.Millisecond, true
		jobs := []job{j, j, other}
		for i := range jobs {
			jobs[i].Rank = i
		}
		rs, err := b.run(ctx, jobs, nil)
		if err != nil {
			return nil, err
		}
		v := contention(rs[:2])
		if rs[2].Stuck || v[stuck] > 0 {
			return values{stuck: 1}, nil
		}
		for _, unit := range []string{"p50-ms", "p99-ms", "acq/s"} {
			v["third-"+unit] = rs[2].Values[unit]
		}
		return v, nil
	}
}

// sharedNumber makes a file of one number, which is 0.
func sharedNumber() (string, error) {
	f, err := os.CreateTemp("", "locks-peers-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(make([]byte, 8))
	f.Close()
	return f.Name(), err
}

// contention puts together what processes have seen that waited for one lock.
func contention(rs []report) values {
	var counts []int
	var holds [][]hold
	v := values{}
	for _, r := range rs {
		if r.Stuck {
			return values{stuck: 1}
		}
		counts, holds = append(counts, r.Counts...), append(holds, r.Holds)
		v["acq/s"] += r.Values["acq/s"]
		v["p99-ms"] = max(v["p99-ms"], r.Values["p99-ms"]) // of the process that is worse off
	}
	n := sum(counts)
	v["jain"], v["max/min"] = jain(counts), spread(counts)
	if len(rs) == 2 { // of the process that got less
		v["share-%"] = 100 * float64(min(sum(rs[0].Counts), sum(rs[1].Counts))) / float64(max(n, 1))
	}
	perAcquisition(v, n, rs...)
	if len(holds[0]) > 0 {
		gaps, overlaps := crossings(holds)
		v["overlaps"] = float64(overlaps)
		v["crossing/acq"] = float64(len(gaps)) / float64(max(n, 1))
		if v["ping-µs"] = rs[0].Values["ping-µs"]; len(gaps) > 0 {
			v["p50-µs"] = quantile(gaps, 0.5)
		}
	}
	return v
}

func measureDrain(waiters int) measure {
	return func(ctx context.Context, b *bench, who string) (values, error) {
		r, err := b.alone(ctx, job{Work: "drain", Who: who, N: waiters, TTL: ttl, For: 20 * time.Second}, nil)
		if err != nil || r.Stuck {
			return values{stuck: 1}, err
		}
		perAcquisition(r.Values, waiters, r)
		return r.Values, nil
	}
}

// measureRenewal measures a whole TTL: contestants renew two to three times in it, each after
// its own period, and in part of one some would renew as often. It begins in the middle of
// such periods, and after the first.
func measureRenewal(n int, ttl time.Duration) measure {
	return measureAlone(func(*bench) job { return job{Work: "renewal", N: n, TTL: ttl, For: ttl} })
}

// measureAlone measures in one process what the job says.
func measureAlone(of func(b *bench) job) measure {
	return func(ctx context.Context, b *bench, who string) (values, error) {
		j := of(b)
		j.Who = who
		r, err := b.alone(ctx, j, nil)
		return r.Values, err
	}
}

// lasting is long enough for what is left behind to be still there when it is counted.
const lasting = 30 * time.Second

func measureFresh(nodes, pairs int, most time.Duration) measure {
	return func(ctx context.Context, b *bench, who string) (values, error) {
		var orphans int
		j := job{Work: "fresh", Who: who, URLs: b.urls(nodes), N: pairs, TTL: lasting, For: b.window(most)}
		r, err := b.alone(ctx, j, func(step string, j job) (err error) {
			orphans, err = b.leftovers(ctx, j.Keys)
			return err
		})
		if err == nil {
			r.Values["orphans"] = float64(orphans)
		}
		return r.Values, err
	}
}

func measureFrozen(ctx context.Context, b *bench, who string) (values, error) {
	const stopped = 2 // any of them
	node := b.rig.Nodes[stopped]
	defer node.Thaw(ctx) // if that was not come to
	var ghosts int
	j := job{Work: "frozen", Who: who, URLs: b.urls(5), N: 500, TTL: lasting, For: b.window(2500 * time.Millisecond)}
	r, err := b.alone(ctx, j, func(step string, j job) (err error) {
		if step == "freeze" {
			return node.Freeze(ctx)
		}
		if err := node.Thaw(ctx); err != nil {
			return err
		}
		time.Sleep(time.Second) // what was on its way has come
		ghosts, err = b.leftovers(ctx, j.Keys)
		return err
	})
	if err != nil {
		return nil, err
	}
	v := r.Values
	v["ghosts"] = float64(ghosts)
	if r.Stuck {
		v[stuck] = 1
		return v, nil
	}
	v["p99/up"], v["p50/up"] = v["frozen-p99-µs"]/v["up-p99-µs"], v["frozen-p50-µs"]/v["up-p50-µs"]
	return v, nil
}

func measureNames(n int) measure {
	return measureAlone(func(b *bench) job { return job{Work: "names", N: n, TTL: ttl, For: b.window(400 * time.Millisecond)} })
}
