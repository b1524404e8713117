package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/rig"
)

// A Theatre lends rigs to plays, and takes them back as good as new: to start servers for
// each play would take longer than the plays. It is safe for concurrent use.
type Theatre struct {
	// Dial, if set before the first play, makes what contenders speak to a server by, in place
	// of the strategies' own client. The node's Close ends all that it has made. The play on a pool
	// of that client cannot be played then, and those with contenders in processes of their own
	// are played with it all the same.
	Dial func(*rig.Link) (driver.Node, error)

	farm *redistest.Farm

	asking sync.Mutex               // held while servers are asked; taken before mu
	truly  map[*redistest.Farm]bool // those that were: they confirm what is synced and no more
	pulse  *pulse                   // by which a machine is known that is too slow; nil: nothing was played yet

	mu     sync.Mutex
	idle   map[house][]*rig.Rig
	all    []*rig.Rig
	closed bool
}

// A house is what rigs are alike by.
type house struct {
	farm    *redistest.Farm
	servers int
}

// newer are the servers of plays on syncs, where the farm's own do not confirm any.
const newer = "redis-8.0"

// Open returns a theatre on the servers of a farm. It starts none yet.
func Open(farm *redistest.Farm) *Theatre {
	return &Theatre{farm: farm, idle: map[house][]*rig.Rig{}, truly: map[*redistest.Farm]bool{}}
}

// Close ends all servers.
func (t *Theatre) Close() error {
	t.asking.Lock()
	defer t.asking.Unlock()
	if t.pulse != nil {
		t.pulse.end()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	var err error
	for _, r := range t.all {
		err = errors.Join(err, r.Close())
	}
	return err
}

// Ready finds out whether there are servers on which the fault can be played on a column.
// Where they cannot be had beside the farm's own, the error wraps redistest.ErrImpossible.
func (t *Theatre) Ready(ctx context.Context, f Fault, c Column) error {
	_, err := t.house(ctx, f, c)
	return err
}

func (t *Theatre) house(ctx context.Context, f Fault, c Column) (house, error) {
	if !c.synced {
		return house{t.farm, c.Servers}, nil
	}
	farm, err := t.farm.Having(ctx, "WAITAOF", newer)
	if err == nil && f.fsync == "everysec" {
		farm, err = t.syncsTruly(ctx, farm)
	}
	return house{farm, c.Servers}, err
}

// syncsTruly is a farm whose servers do not confirm what they have only written: this one,
// or a newer.
func (t *Theatre) syncsTruly(ctx context.Context, farm *redistest.Farm) (*redistest.Farm, error) {
	t.asking.Lock()
	defer t.asking.Unlock()
	truly, known := t.truly[farm]
	if !known {
		h := house{farm, 1}
		r, err := t.borrow(ctx, h)
		if err != nil {
			return nil, err
		}
		if err = r.Nodes[0].Persist(ctx, "everysec"); err == nil {
			truly, err = r.Nodes[0].SyncsTruly(ctx)
		}
		if err := errors.Join(err, t.giveBack(context.WithoutCancel(ctx), h, r)); err != nil {
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

func (t *Theatre) borrow(ctx context.Context, h house) (*rig.Rig, error) {
	t.mu.Lock()
	if rest := t.idle[h]; len(rest) > 0 {
		r := rest[len(rest)-1]
		t.idle[h] = rest[:len(rest)-1]
		t.mu.Unlock()
		return r, nil
	}
	t.mu.Unlock()
	r, err := rig.Open(ctx, h.farm, h.servers, redistest.Config{})
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, r)
	return r, nil
}

// giveBack keeps a rig for the next play. One that does not get well is not lent again.
func (t *Theatre) giveBack(ctx context.Context, h house, r *rig.Rig) error {
	if err := r.Reset(ctx); err != nil {
		return errors.Join(fmt.Errorf("the servers do not recover: %w", err), r.Close())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle[h] = append(t.idle[h], r)
	return nil
}

// play plays the fault on a strategy, or on a sloppy one, once, and tells how it ended.
func (t *Theatre) play(ctx context.Context, f Fault, c Column, sloppy *Sloppy, scale time.Duration) (out Outcome) {
	h, err := t.house(ctx, f, c)
	if err != nil {
		return Outcome{Err: err}
	}
	beats, err := t.beats(ctx)
	if err != nil {
		return Outcome{Err: err}
	}
	r, err := t.borrow(ctx, h)
	if err != nil {
		return Outcome{Err: err}
	}
	defer func() {
		if errors.Is(out.Err, errHangs) { // it may go on, under the next play
			out.Err = errors.Join(out.Err, r.Close())
			return
		}
		out.Err = errors.Join(out.Err, t.giveBack(context.WithoutCancel(ctx), h, r))
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
		ttl: 6 * time.Second * scale, short: time.Second * scale, op: time.Second * scale,
		facts: map[Verdict][]string{}, weather: map[*rig.Node]func(*rig.Link){},
	}
	if c.synced { // what Check demands where the file is synced every second
		s.ttl, s.op = 9*time.Second*scale, 2*time.Second*scale
	}
	began := time.Now()
	out = s.act(f.play)
	if longest := beats.longest(began); longest > s.short/10 {
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
	r, err := rig.Open(ctx, t.farm, 1, redistest.Config{})
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.all = append(t.all, r)
	t.mu.Unlock()
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
			acquitted = append(acquitted, fmt.Sprintf("a lock that %s: %v\n%v", sloppy.Name, out, out.History))
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
