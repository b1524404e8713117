package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/redlock"
)

// A bench runs scenarios on servers that it has started or was given.
type bench struct {
	farm     *redistest.Farm
	one      *redistest.Server // for the scenarios that need one
	mine     bool              // nobody else uses it
	rig      *rig.Rig          // for the scenario under way; nil: it needs none
	links    []*rig.Link       // to the rig's nodes; nil: none is between
	random   *rand.Rand
	reps     int
	quick    bool
	who      []string // nil: all
	profiles string   // a directory; empty: none are taken
	progress io.Writer
	lines    *benchWriter
	before   earlier // repetitions that count, too
	program  string  // what contestants of the earlier build are played by
}

// An outcome is what a scenario has shown.
type outcome struct {
	scenario
	reps     int
	got      map[entry][]values // by repetition; nil where nothing was measured
	failures []string
}

// An entry is a contestant at one size of what grows.
type entry struct {
	who string
	x   int
}

// series is a unit over the repetitions; NaN where it was not measured.
func (o *outcome) series(who string, x int, unit string) []float64 {
	s := make([]float64, o.reps)
	for i := range s {
		s[i] = math.NaN()
		if got := o.got[entry{who, x}]; i < len(got) {
			if v, ok := got[i][unit]; ok {
				s[i] = v
			}
		}
	}
	return s
}

// present are the contestants that were measured, in the scenario's order.
func (o *outcome) present() (who []string) {
	for _, w := range o.who {
		for _, x := range o.sizes() {
			if slices.ContainsFunc(o.got[entry{w, x}], func(v values) bool { return v != nil }) {
				who = append(who, w)
				break
			}
		}
	}
	return who
}

func (s scenario) sizes() []int {
	if s.xs == nil {
		return []int{0}
	}
	return s.xs
}

// repetitions are how many there are of the scenario in reps of all.
func (s scenario) repetitions(reps int) int {
	every := max(s.every, 1)
	return (reps + every - 1) / every * max(s.turns, 1)
}

// entries are what the bench measures. Floors are always among them, as others are
// divided by these.
func (b *bench) entries(s scenario) (all []entry) {
	for _, w := range s.who {
		if b.who != nil && kindOf(w) != floor && !slices.Contains(b.who, strings.TrimSuffix(w, atBefore)) {
			continue
		}
		for _, x := range s.sizes() {
			all = append(all, entry{w, x})
		}
	}
	return all
}

// play measures a scenario: in each repetition all entries, in a random order.
func (b *bench) play(ctx context.Context, s scenario) (_ *outcome, err error) {
	o := &outcome{scenario: s, reps: s.repetitions(b.reps), got: map[entry][]values{}}
	all := b.entries(s)
	for _, e := range all {
		o.got[e] = make([]values, o.reps)
	}
	defer b.before.add(o)
	if b.reps == 0 {
		return o, nil
	}
	if err := b.equip(ctx, s); err != nil {
		return nil, err
	}
	defer b.unequip()
	for rep := range o.reps / max(s.turns, 1) {
		begin := time.Now()
		b.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if s.turns > 0 {
			err = b.measureAll(ctx, o, rep, all)
		} else {
			for _, e := range all {
				v, failure := s.measure(ctx, b, e.who, e.x)
				if err = b.note(ctx, o, rep, e, v, failure); err != nil {
					break
				}
			}
		}
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(b.progress, "peers: %s: repetition %d of %d took %v\n", s.name, rep+1, o.reps/max(s.turns, 1), time.Since(begin).Round(100*time.Millisecond))
	}
	return o, nil
}

// measureAll measures all entries in one repetition.
func (b *bench) measureAll(ctx context.Context, o *outcome, rep int, all []entry) error {
	var jobs []job
	for _, e := range all {
		j := o.job(b, e.who)
		j.Turns = o.turns
		jobs = append(jobs, j)
	}
	keys := b.prepare(jobs)
	for i := range jobs {
		jobs[i].Keys += fmt.Sprintf("-%d", i) // they are open at the same time
	}
	reports, failures := interleave(ctx, jobs, b.random)
	for turn := range o.turns { // what was measured together is printed together
		for i, r := range reports {
			v := values{stuck: 1}
			if turn < len(r.Each) {
				v = r.Each[turn]
			}
			if err := b.note(ctx, o, rep*o.turns+turn, all[i], v, failures[i]); err != nil {
				return err
			}
		}
	}
	return b.clear(ctx, keys)
}

// note keeps what was measured, and prints it.
func (b *bench) note(ctx context.Context, o *outcome, rep int, e entry, v values, failure error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if failure != nil {
		v = values{failed: 1}
		said := fmt.Sprintf("%s, %s: %v", o.name, e.label(), failure)
		fmt.Fprintf(b.progress, "peers: %s\n", said)
		if kindOf(e.who) != peer && !slices.Contains(o.failures, said) { // a peer's failure is not ours
			o.failures = append(o.failures, said)
		}
	}
	o.got[e][rep] = v
	return b.lines.write(o.name, e, v)
}

func (e entry) label() string {
	if e.x == 0 {
		return e.who
	}
	return fmt.Sprintf("%s/x=%d", e.who, e.x)
}

// equip starts the servers that a scenario needs.
func (b *bench) equip(ctx context.Context, s scenario) (err error) {
	if s.nodes == 0 {
		return nil
	}
	if b.rig, err = rig.Open(ctx, b.farm, s.nodes, redistest.Config{}); err != nil {
		return err
	}
	if s.roundTrip > 0 {
		for _, n := range b.rig.Nodes {
			l := n.Link()
			l.Delay(rig.Both, s.roundTrip/2)
			b.links = append(b.links, l)
		}
	}
	return nil
}

func (b *bench) unequip() {
	if b.rig == nil {
		return
	}
	if err := b.rig.Close(); err != nil {
		fmt.Fprintf(b.progress, "peers: %v\n", err)
	}
	b.rig, b.links = nil, nil
}

// urls are those of the first n servers.
func (b *bench) urls(n int) (urls []string) {
	for i, node := range b.rig.Nodes[:n] {
		if b.links != nil {
			urls = append(urls, "redis://"+b.links[i].Addr())
		} else {
			urls = append(urls, node.Server().URL())
		}
	}
	return urls
}

// alone runs a job in one process.
func (b *bench) alone(ctx context.Context, j job, at func(step string, j job) error) (report, error) {
	rs, err := b.run(ctx, []job{j}, at)
	if err != nil {
		return report{}, err
	}
	return rs[0], nil
}

// run runs jobs at the same time, on new names, and leaves no key.
func (b *bench) run(ctx context.Context, jobs []job, at func(step string, j job) error) ([]report, error) {
	keys := b.prepare(jobs)
	if b.rig != nil {
		if err := b.bootstrap(ctx); err != nil {
			return nil, err
		}
	}
	rs, err := together(ctx, jobs, func(step string) error {
		if at == nil {
			return nil
		}
		return at(step, jobs[0])
	})
	return rs, errors.Join(err, b.clear(ctx, keys))
}

// prepare sets what jobs have in common: what their names begin with, and the server.
func (b *bench) prepare(jobs []job) (keys string) {
	keys = fmt.Sprintf("bench-%012x", b.random.Uint64()>>16)
	for i := range jobs {
		jobs[i].Keys, jobs[i].Trace = keys, b.trace(jobs[i])
		if who, ok := strings.CutSuffix(jobs[i].Who, atBefore); ok {
			jobs[i].Who, jobs[i].Program = who, b.program
		}
		if jobs[i].URLs == nil {
			jobs[i].URLs = []string{b.one.URL()}
		}
	}
	return keys
}

// bootstrap lets empty servers vote.
func (b *bench) bootstrap(ctx context.Context) error {
	var pools []*redis.Pool
	for _, n := range b.rig.Nodes {
		pools = append(pools, n.Server().Pool())
	}
	return locktest.OnNodes(pools, func(nodes []driver.Node) error { return redlock.Bootstrap(ctx, nodes) })
}

// clear removes what jobs have left behind.
func (b *bench) clear(ctx context.Context, keys string) error {
	if b.rig != nil {
		var errs []error
		for _, n := range b.rig.Nodes {
			if err := n.Thaw(ctx); err != nil {
				errs = append(errs, err)
				continue
			}
			errs = append(errs, n.FlushAll(ctx))
		}
		return errors.Join(errs...)
	}
	c, err := b.one.Pool().GetContext(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if b.mine {
		_, err := c.Do("FLUSHALL")
		return err
	}
	for cursor := "0"; ; {
		reply, err := redis.Values(c.Do("SCAN", cursor, "MATCH", "*"+keys+"*", "COUNT", 1000))
		if err != nil {
			return err
		}
		var found []any
		if _, err := redis.Scan(reply, &cursor, &found); err != nil {
			return err
		}
		if len(found) > 0 {
			if _, err := c.Do("UNLINK", found...); err != nil {
				return err
			}
		}
		if cursor == "0" {
			return nil
		}
	}
}

// countLeft counts the keys that have a TTL, but for fence counters: these stay, and expire in a day.
const countLeft = `local n = 0
for _, key in ipairs(redis.call("keys", ARGV[1])) do
  if redis.call("pttl", key) > 0 and not key:find(":fence$") then n = n + 1 end
end
return n`

// leftovers counts keys that should be gone, on all servers of the rig.
func (b *bench) leftovers(ctx context.Context, keys string) (total int, err error) {
	for _, node := range b.rig.Nodes {
		n, err := redis.Int(node.Do(ctx, "EVAL", countLeft, 0, "*"+keys+"*"))
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// camel is loop-64 as Loop64.
func camel(name string) string {
	var b strings.Builder
	for _, word := range strings.Split(name, "-") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}
