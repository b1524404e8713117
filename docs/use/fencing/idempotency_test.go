package fencing_test

// Tests how often the work of a request runs that comes twice, and what its callers get. Time is virtual.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/docs/use/fencing"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

var errNothing = errors.New("nothing was done")

// inMemory is a store without a network. It writes also if the context has ended, as some stores do.
type inMemory struct{ http.Handler }

func (s *inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

const id, request = "idempotency/ann/k1", "POST /payments"

// A till pays at each run, and says how often it has. Once, something happens during a run.
type till struct {
	*testing.T
	fencing.Once
	locks  *lockstest.Locks
	store  *inMemory
	runs   int
	during func(*till, context.Context) error
}

func (p *till) post(request string) (string, error) {
	ctx, leave := context.WithCancel(context.Background())
	return p.Do(ctx, id, request, func(ctx context.Context, _ strategy.Lease) (answer string, err error) {
		leave() // the caller does
		p.runs++
		answer = fmt.Sprint("paid ", p.runs)
		if during := p.during; during != nil {
			p.during = nil
			err = during(p, ctx)
		}
		return answer, err
	})
}

// TestOnce: the first request meets something, and the second one, with the same key, comes after it.
func TestOnce(t *testing.T) {
	for name, c := range map[string]struct {
		during        func(*till, context.Context) error
		first         error
		answer, again string
	}{
		"nothing":          {nil, nil, "paid 1", "paid 1"},
		"an unknown reply": {(*till).unsure, nil, "paid 1", "paid 1"}, // to the release
		"a duplicate":      {(*till).duplicated, nil, "paid 1", "paid 1"},
		"no effect":        {(*till).refuses, errNothing, "", "paid 2"},
		"a store away":     {(*till).storeAway, fencing.ErrInterrupted, "", "paid 2"},
		"a lost lock":      {(*till).lost, fencing.ErrInterrupted, "", "paid 2"},
		"a pause":          {(*till).paused, fencing.ErrInterrupted, "", "paid 2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := fencing.NewHandler()
				p := &till{T: t, locks: lockstest.New(t), store: &inMemory{store}, during: c.during}
				answers := fencing.HTTP{URL: "http://store", Client: &http.Client{Transport: p.store}}
				p.Once = fencing.Once{Locks: p.locks, Answers: answers, Wait: 2 * time.Second}
				got, err := p.post(request)
				begun := errors.Is(err, fencing.ErrInterrupted) // after any other error nothing was done
				if got != c.answer || !errors.Is(err, c.first) || begun != (c.first == fencing.ErrInterrupted) {
					t.Errorf("the first gets %q, %v, want %q, %v", got, err, c.answer, c.first)
				}
				p.store.Handler = store
				if got, err := p.post(request); got != c.again || err != nil {
					t.Errorf("the second gets %q, %v, want %q", got, err, c.again)
				}
				if got, err := p.post("POST /refunds"); got != "" || !errors.Is(err, fencing.ErrReused) {
					t.Errorf("another request gets %q, %v, want ErrReused", got, err)
				}
			})
		})
	}
}

func (p *till) unsure(context.Context) error    { p.locks.FailNext(lockstest.LostReply); return nil }
func (p *till) refuses(context.Context) error   { return errNothing }
func (p *till) storeAway(context.Context) error { p.store.Handler = http.NotFoundHandler(); return nil }

func (p *till) lost(ctx context.Context) error {
	p.locks.Lose(id)
	if cause := context.Cause(ctx); !errors.Is(cause, strategy.ErrLost) {
		p.Errorf("the work's context has ended with %v, want ErrLost", cause)
	}
	return nil
}

func (p *till) paused(context.Context) error {
	p.locks.Advance(time.Minute) // past the TTL
	_, err := p.post(request)
	return err
}

func (p *till) duplicated(context.Context) error {
	if _, err := p.post(request); !errors.Is(err, strategy.ErrHeld) {
		p.Errorf("the duplicate gets %v, want ErrHeld", err)
	}
	return nil
}
