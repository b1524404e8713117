package lessons

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lab/stage"
)

// A School gives lessons, on servers of one farm.
type School struct {
	// Step, if set, is called before each command, and before whatever else happens, with all
	// who are on the stage by then, and returns when that may. Its error ends the lesson.
	Step func(next Event, on []Actor) error

	// Watch, if set, sees each act.
	Watch Watcher

	farm *redistest.Farm
	rigs stage.Rigs
}

// A Watcher sees a lesson while it is given.
type Watcher interface {
	// Begins: an act does. Of its trace there are the title, and the servers.
	Begins(Trace)
	// Happens gets each event of an act that goes by steps, with all who are on the
	// stage by then. It must not call the School. Other acts may be played again, so that it
	// is known only at their ends what counts.
	Happens(Event, []Actor)
	// Ends: that is the whole of it.
	Ends(Trace)
}

// Open returns a school on the servers of a farm. It starts none yet.
func Open(farm *redistest.Farm) *School {
	return &School{farm: farm}
}

// Close ends the servers that were started.
func (sc *School) Close() error { return sc.rigs.Close() }

// The TTL of locks in lessons: long enough for a busy machine, and short enough for those
// who wait; and where a reader decides how long it takes.
const (
	usualTTL = 400 * time.Millisecond
	stepTTL  = 30 * time.Minute
)

// Perform gives a lesson. If the servers that it takes are not available, the error wraps
// redistest.ErrImpossible.
func (sc *School) Perform(ctx context.Context, l Lesson) (Result, error) {
	r := Result{Number: l.Number, Name: l.Name, Title: l.Title, Idea: l.Idea, Fix: l.Fix}
	for _, a := range l.Acts {
		trace, err := sc.play(ctx, l, a, &r.Redis)
		if errors.Is(err, redistest.ErrImpossible) {
			return r, err
		}
		if err != nil {
			return r, fmt.Errorf("lesson %d, %q: %w", l.Number, a.Title, err)
		}
		r.Acts = append(r.Acts, trace)
	}
	return r, nil
}

// play plays an act. If the machine was too slow, so that locks may have lapsed that should
// not have, it is played again, with more time; three times at most.
func (sc *School) play(ctx context.Context, l Lesson, a Act, version *string) (Trace, error) {
	const longest = 8 * usualTTL
	for ttl := usualTTL; ; ttl *= 2 {
		s, err := sc.stage(ctx, l, ttl*time.Duration(max(a.long, 1)))
		if err != nil {
			return Trace{}, err
		}
		*version = s.servers[0].redis.Version()
		s.begin(a, ttl == usualTTL)
		trace, err := s.act(a)
		tooSlow := s.slower(s.ttl/4) || errors.Is(err, os.ErrDeadlineExceeded) // a server that did not answer in time, too
		again := s.step == nil && tooSlow && ttl < longest && s.ctx.Err() == nil
		if err == nil && !again && s.slower(s.ttl) {
			err = fmt.Errorf("for longer than a TTL (%v) nothing happened, so locks may have lapsed that should not have: this shows nothing", s.ttl)
		}
		if !again && err == nil {
			if sc.Watch != nil {
				sc.Watch.Ends(trace)
			}
			err = s.leave()
		}
		err = errors.Join(err, s.clean())
		s.quit(nil)
		if !again {
			return trace, err
		}
	}
}

// begin prepares an act, and tells of it the first time.
func (s *Stage) begin(a Act, first bool) {
	s.trace.Title = a.Title
	if first && s.school.Watch != nil {
		s.school.Watch.Begins(s.trace)
	}
	switch {
	case s.step == nil:
	case a.Timed:
		if first {
			s.pause(Event{Kind: Note, Text: "what follows has its own time, and does not stop"})
		}
		s.step, s.watch = nil, nil
	default:
		s.ttl, s.op = stepTTL, stepTTL/2
	}
}

// stage has servers on which nothing is left of what was before.
func (sc *School) stage(ctx context.Context, l Lesson, ttl time.Duration) (*Stage, error) {
	n := max(l.Servers, 1)
	s := &Stage{school: sc, name: "tea", ttl: ttl, step: sc.Step, shares: alone}
	lent, err := sc.rigs.Borrow(ctx, sc.farm, n)
	switch {
	case errors.Is(err, redistest.ErrImpossible) && !l.Own:
		// On others' servers, too, the lock is nobody else's.
		s.name = fmt.Sprintf("tea-%04x", rand.N(1<<16))
		servers, err := sc.farm.AtMost(ctx, n)
		if err != nil {
			return nil, err
		}
		if len(servers) < n {
			return nil, fmt.Errorf("lesson %d takes %d servers, and there are %d: %w", l.Number, n, len(servers), redistest.ErrImpossible)
		}
		for _, r := range servers {
			s.servers = append(s.servers, &server{s: s, redis: r})
		}
	case errors.Is(err, redistest.ErrImpossible):
		return nil, fmt.Errorf("lesson %d breaks its servers, so they have to be its own: containers, or processes of a redis-server: %w", l.Number, redistest.ErrImpossible)
	case err != nil:
		return nil, err
	default:
		s.rig = lent
		for _, p := range lent.Nodes {
			s.servers = append(s.servers, &server{s: s, redis: p.Server(), node: p})
		}
	}
	for i, srv := range s.servers {
		srv.name = "redis"
		if n > 1 {
			srv.name = fmt.Sprintf("n%d", i+1)
		}
		if l.names != nil {
			srv.name = l.names[i]
		}
		s.trace.Actors = append(s.trace.Actors, Actor{Name: srv.name, Server: true, URL: srv.url()})
	}
	s.ctx, s.quit = context.WithCancelCause(ctx)
	if sc.Watch != nil && s.step != nil {
		s.watch = sc.Watch.Happens
	}
	return s, nil
}

// leave lets a reader who steps look at what an act has left on the servers.
func (s *Stage) leave() error {
	s.step = s.school.Step
	s.pause(Event{Kind: Note, Text: "the act is over, and what it has left on the servers goes away"})
	return s.Err()
}

// clean removes what an act has left on the servers.
func (s *Stage) clean() (err error) {
	if s.rig != nil {
		return s.school.rigs.GiveBack(s.ctx, s.rig)
	}
	for _, srv := range s.servers {
		c := srv.redis.Pool().Get()
		for _, k := range append([]string{s.key()}, s.left...) {
			if _, e := c.Do("DEL", k); e != nil {
				err = errors.Join(err, fmt.Errorf("the lesson may have left %s at %s: DEL: %w", k, srv.redis.Addr(), e))
			}
		}
		c.Close()
	}
	return err
}

// leaves says that the act leaves a key besides the lock's, and returns it.
func (s *Stage) leaves(key string) string {
	s.left = append(s.left, key)
	return key
}

// leavesFence says that the act leaves the lock's counter.
func (s *Stage) leavesFence() { s.leaves(driver.SiblingKey(s.key(), "fence")) }
