package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/lab/stage"
)

// A Theatre plays faults on rigs of its own. It is safe for concurrent use.
type Theatre struct {
	// Dial, if set before the first play, makes what contenders speak to a server by, in place
	// of the strategies' own client. The node's Close ends all that it has made. The play on a pool
	// of that client cannot be played then, and those with contenders in processes of their own
	// are played with it all the same.
	Dial func(*rig.Link) (driver.Node, error)

	farm *redistest.Farm
	rigs stage.Rigs

	asking sync.Mutex               // held while servers are asked
	truly  map[*redistest.Farm]bool // those that were: they confirm what is synced and no more
	pulse  *pulse                   // by which a machine is known that is too slow; nil: nothing was played yet
}

// newer are the servers of plays on syncs, where the farm's own do not confirm any.
const newer = "redis-8.0"

// Open returns a theatre on the servers of a farm. It starts none yet.
func Open(farm *redistest.Farm) *Theatre {
	return &Theatre{farm: farm, truly: map[*redistest.Farm]bool{}}
}

// Close ends all servers.
func (t *Theatre) Close() error {
	t.asking.Lock()
	defer t.asking.Unlock()
	if t.pulse != nil {
		t.pulse.end()
	}
	return t.rigs.Close()
}

// Ready finds out whether there are servers on which the fault can be played on a column.
// Where they are not available next to the farm's own, the error wraps redistest.ErrImpossible.
func (t *Theatre) Ready(ctx context.Context, f Fault, c Column) error {
	_, err := t.farmFor(ctx, f, c)
	return err
}

// farmFor has the servers on which the fault can be played on a column.
func (t *Theatre) farmFor(ctx context.Context, f Fault, c Column) (*redistest.Farm, error) {
	if len(c.Commands) > 0 {
		return t.farm.Having(ctx, c.Edition, c.Commands...)
	}
	if !c.synced {
		return t.farm, nil
	}
	farm, err := t.farm.Having(ctx, newer, "WAITAOF")
	if err == nil && f.fsync == "everysec" {
		farm, err = t.syncsTruly(ctx, farm)
	}
	return farm, err
}

// syncsTruly is a farm whose servers do not confirm what they have only written: this one,
// or a newer.
func (t *Theatre) syncsTruly(ctx context.Context, farm *redistest.Farm) (*redistest.Farm, error) {
	t.asking.Lock()
	defer t.asking.Unlock()
	truly, known := t.truly[farm]
	if !known {
		r, err := t.rigs.Borrow(ctx, farm, 1)
		if err != nil {
			return nil, err
		}
		if err = r.Nodes[0].Persist(ctx, "everysec"); err == nil {
			truly, err = r.Nodes[0].SyncsTruly(ctx)
		}
		if err := errors.Join(err, t.rigs.GiveBack(ctx, r)); err != nil {
			return nil, err
		}
		t.truly[farm] = truly
	}
	if truly {
		return farm, nil
	}
	other, err := t.farm.Of(ctx, newer)
	if err == nil && other == farm {
		err = redistest.ErrImpossible
	}
	if err != nil {
		return nil, fmt.Errorf("the servers confirm a write before they have synced it, and so prove nothing: %w", err)
	}
	return other, nil
}

// play plays the fault on a strategy, or on a sloppy one, once, and tells how it ended.
func (t *Theatre) play(ctx context.Context, f Fault, c Column, sloppy *Sloppy, scale time.Duration) (out Outcome) {
	farm, err := t.farmFor(ctx, f, c)
	if err != nil {
		return Outcome{Err: err}
	}
	beats, err := t.beats(ctx)
	if err != nil {
		return Outcome{Err: err}
	}
	r, err := t.rigs.Borrow(ctx, farm, c.Servers)
	if err != nil {
		return Outcome{Err: err}
	}
	defer func() {
		if errors.Is(out.Err, errHangs) { // it may go on, under the next play
			out.Err = errors.Join(out.Err, r.Close())
			return
		}
		out.Err = errors.Join(out.Err, t.rigs.GiveBack(ctx, r))
	}()
	fsync := f.fsync
	if c.synced && (fsync == "" || fsync == "no") {
		fsync = "always" // it can do nothing without a file, and of one that is not synced none is confirmed
	}
	if fsync != "" && (sloppy == nil || !sloppy.memory) {
		for _, n := range r.Nodes {
			if err := n.Persist(ctx, fsync); err != nil {
				return Outcome{Err: err}
			}
		}
	}
	s := &Stage{
		ctx: ctx, column: c, sloppy: sloppy, rig: r, name: "job", dial: t.Dial,
		ttl: 6 * time.Second * scale, brief: time.Second * scale, op: time.Second * scale,
		facts: map[Verdict][]string{}, weather: map[*rig.Node]func(*rig.Link){},
	}
	if c.synced { // what Check demands where the file is synced every second
		s.ttl, s.op = 9*time.Second*scale, 2*time.Second*scale
	}
	began := time.Now()
	out = s.act(f.tell)
	if longest := beats.longest(began); longest > s.brief/10 {
		out.Slow = fmt.Sprintf("a server that nobody breaks has not answered for %v", longest.Round(time.Millisecond))
	}
	return out
}

// beats are of a server of the farm that takes part in no play.
func (t *Theatre) beats(ctx context.Context) (*pulse, error) {
	t.asking.Lock()
	defer t.asking.Unlock()
	if t.pulse != nil {
		return t.pulse, nil
	}
	r, err := t.rigs.Borrow(ctx, t.farm, 1)
	if err != nil {
		return nil, err
	}
	if err := r.Nodes[0].Persist(ctx, "always"); err != nil { // so that a slow disk shows, too
		return nil, err
	}
	t.pulse = listen(r.Nodes[0].Server().Pool())
	return t.pulse, nil
}

// See plays the fault, and plays it again, with ever more time and three times at most, if
// it could not be played to its end, or the machine was too slow for it: then locks lapse,
// and requests time out, whatever the lock is like. Any other verdict counts at once, and so
// does, in any play, that two held the lock: that is never the machine's doing.
func (t *Theatre) See(ctx context.Context, f Fault, c Column, want Verdict) Outcome {
	return t.until(ctx, f, c, nil, func(out Outcome) bool { return out.counts(want) })
}

func (o Outcome) counts(want Verdict) bool {
	return o.Verdict == Violated && want != Violated || o.Err == nil && (o.Verdict == want || o.Slow == "")
}

// Convict plays the fault on locks that make its mistakes, until one ends worse than
// it should, with as much time as See takes. Without one it tells how all ended.
func (t *Theatre) Convict(ctx context.Context, f Fault, c Column, should Verdict) (by *Sloppy, convicted Outcome, acquitted []string) {
	for scale := time.Duration(1); scale <= 4; scale *= 2 {
		for _, sloppy := range f.Turned {
			out := t.play(ctx, f, c, &sloppy, scale)
			if out.Err == nil && out.Verdict > should {
				return &sloppy, out, nil
			}
			acquitted = append(acquitted, fmt.Sprintf("a lock that %s: %v\n%v", sloppy.Name, out, out.History()))
		}
	}
	return nil, Outcome{}, acquitted
}

// until plays until the play is over as it should be, with ever more time.
func (t *Theatre) until(ctx context.Context, f Fault, c Column, sloppy *Sloppy, over func(Outcome) bool) (out Outcome) {
	for scale := time.Duration(1); scale <= 4; scale *= 2 {
		var before []string
		if scale > 1 {
			why := ""
			if out.Slow != "" {
				why = " (the machine was too slow: " + out.Slow + ")"
			}
			before = append(out.Before, out.String()+why)
		}
		out = t.play(ctx, f, c, sloppy, scale)
		if out.Before = before; over(out) {
			break
		}
	}
	return out
}
