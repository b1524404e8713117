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

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/lab/stage"
)

// A bench runs scenarios on servers that it has started.
type bench struct {
	farm     *redistest.Farm
	one      *redistest.Server // for the scenarios that need one
	rig      *rig.Rig          // for the scenario under way; nil: it needs none
	links    []*rig.Link       // to the rig's nodes; nil: none is between
	random   *rand.Rand
	reps     int
	quick    bool
	who      []string // nil: all
	progress io.Writer
	program  string // what contestants of the earlier build are played by
}

// An outcome is what a scenario has shown.
type outcome struct {
	scenario
	got      map[string][]values // of each contestant, by repetition
	failures []string
}

func (o *outcome) reps() (n int) {
	for _, got := range o.got {
		n = max(n, len(got))
	}
	return n
}

// series is a unit over the repetitions; NaN where it was not measured.
func (o *outcome) series(who, unit string) []float64 {
	s := make([]float64, o.reps())
	for i := range s {
		s[i] = math.NaN()
		if got := o.got[who]; i < len(got) {
			if v, ok := got[i][unit]; ok {
				s[i] = v
			}
		}
	}
	return s
}

// present are the contestants that were measured, in the scenario's order.
func (o *outcome) present() []string {
	return slices.DeleteFunc(slices.Clone(o.who), func(who string) bool { return len(o.got[who]) == 0 })
}

// play measures a scenario: in each repetition all contestants, in a random order. Floors are always among them,
// as others are divided by these.
func (b *bench) play(ctx context.Context, s scenario) (*outcome, error) {
	o := &outcome{scenario: s, got: map[string][]values{}}
	all := slices.DeleteFunc(slices.Clone(s.who), func(who string) bool {
		return len(b.who) > 0 && kindOf(who) != floor && !slices.Contains(b.who, strings.TrimSuffix(who, atBefore))
	})
	if err := b.equip(ctx, s); err != nil {
		return nil, err
	}
	defer b.unequip()
	every := max(s.every, 1)
	reps := (b.reps + every - 1) / every
	for rep := range reps {
		begin := time.Now()
		b.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if err := b.repeat(ctx, o, all); err != nil {
			return nil, err
		}
		fmt.Fprintf(b.progress, "peers: %s: repetition %d of %d took %v\n", s.name, rep+1, reps, time.Since(begin).Round(100*time.Millisecond))
	}
	return o, nil
}

// repeat measures all contestants in one repetition, one after another or in turns.
func (b *bench) repeat(ctx context.Context, o *outcome, all []string) error {
	if o.turns == 0 {
		for _, who := range all {
			v, failure := o.measure(ctx, b, who)
			if err := b.note(ctx, o, who, v, failure); err != nil {
				return err
			}
		}
		return nil
	}
	var jobs []job
	for _, who := range all {
		j := o.job(b, who)
		j.Turns = o.turns
		jobs = append(jobs, j)
	}
	b.prepare(jobs)
	for i := range jobs {
		jobs[i].Keys += fmt.Sprintf("-%d", i) // they are open at the same time
	}
	reports, failures := interleave(ctx, jobs, b.random)
	for i, r := range reports {
		for turn := range o.turns {
			v := values{stuck: 1}
			if turn < len(r.Each) {
				v = r.Each[turn]
			}
			if err := b.note(ctx, o, all[i], v, failures[i]); err != nil {
				return err
			}
		}
	}
	return b.clear(ctx)
}

func (b *bench) note(ctx context.Context, o *outcome, who string, v values, failure error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if failure != nil {
		v = values{failed: 1}
		said := fmt.Sprintf("%s, %s: %v", o.name, who, failure)
		fmt.Fprintf(b.progress, "peers: %s\n", said)
		if kindOf(who) != peer && !slices.Contains(o.failures, said) { // a peer's failure is not ours
			o.failures = append(o.failures, said)
		}
	}
	o.got[who] = append(o.got[who], v)
	return nil
}

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

func (b *bench) alone(ctx context.Context, j job, at func(step string, j job) error) (report, error) {
	rs, err := b.run(ctx, []job{j}, at)
	if err != nil {
		return report{}, err
	}
	return rs[0], nil
}

// run runs jobs at the same time, on new names, and leaves no key.
func (b *bench) run(ctx context.Context, jobs []job, at func(step string, j job) error) ([]report, error) {
	b.prepare(jobs)
	if b.rig != nil {
		if err := stage.Bootstrap(ctx, b.rig); err != nil {
			return nil, err
		}
	}
	rs, err := together(ctx, jobs, func(step string) error {
		if at == nil {
			return nil
		}
		return at(step, jobs[0])
	})
	return rs, errors.Join(err, b.clear(ctx))
}

// prepare sets what jobs have in common: what their names begin with, and the server.
func (b *bench) prepare(jobs []job) {
	keys := fmt.Sprintf("bench-%012x", b.random.Uint64()>>16)
	for i := range jobs {
		jobs[i].Keys = keys
		if who, ok := strings.CutSuffix(jobs[i].Who, atBefore); ok {
			jobs[i].Who, jobs[i].Program = who, b.program
		}
		if jobs[i].URLs == nil {
			jobs[i].URLs = []string{b.one.URL()}
		}
	}
}

func (b *bench) clear(ctx context.Context) (err error) {
	if b.rig == nil {
		c, err := b.one.Pool().GetContext(ctx)
		if err != nil {
			return err
		}
		_, err = c.Do("FLUSHALL")
		return errors.Join(err, c.Close())
	}
	for _, n := range b.rig.Nodes {
		err = errors.Join(err, n.Thaw(ctx), n.FlushAll(ctx))
	}
	return err
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
