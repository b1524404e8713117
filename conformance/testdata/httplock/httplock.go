// Package httplock is a lock server over HTTP and its protocol, in a module of its own: a lock whose servers are of
// another kind, held to the same suite.
package httplock

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// A Server keeps the locks.
type Server struct {
	locks  lockstest.Memory
	mu     sync.Mutex
	undone map[string]bool // tokens that must not be granted any more
}

// NewServer returns a server without locks.
func NewServer() *Server { return &Server{undone: map[string]bool{}} }

// A request is what a client asks for.
type request struct {
	Move  string
	Claim driver.Claim
	From  string // adopt: the token whose place is taken
}

// A reply is what it hears.
type reply struct {
	Grant driver.Grant
	Info  strategy.Info
	Held  *strategy.HeldError
	Lost  *strategy.LostError
}

// ServeHTTP does what a client asks for.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q request
	if err := gob.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a, err := s.moves(q)
	if err != nil && !errors.As(err, &a.Held) && !errors.As(err, &a.Lost) {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	gob.NewEncoder(w).Encode(a)
}

// moves makes one move after the other. It does not ask whether the client still waits.
func (s *Server) moves(q request) (a reply, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx := context.Background()
	switch q.Move {
	case "acquire":
		if s.undone[q.Claim.Token] {
			return a, &strategy.HeldError{Name: q.Claim.Name}
		}
		a.Grant, err = s.locks.Acquire(ctx, q.Claim)
	case "extend":
		a.Grant, err = s.locks.Extend(ctx, q.Claim)
	case "adopt":
		a.Grant, err = s.locks.Adopt(ctx, q.Claim, q.From)
	case "release":
		_, err = s.locks.Release(ctx, q.Claim)
	case "undo":
		s.undone[q.Claim.Token] = true // the acquire may come only now
		err = s.locks.Undo(ctx, q.Claim)
	case "inspect":
		a.Info, err = s.locks.Inspect(ctx, q.Claim)
	case "evict":
		err = s.locks.Evict(ctx, q.Claim.Key)
	default:
		err = fmt.Errorf("there is no move %q", q.Move)
	}
	return a, err
}

// Client is the protocol.
type Client struct {
	driver.Unsupported // Check

	url  string
	http http.Client
}

// On returns the protocol on the server at url, over a transport of its own.
func On(url string, t *http.Transport) *Client {
	return &Client{url: url, http: http.Client{Transport: t}}
}

func (p *Client) ask(ctx context.Context, move string, c driver.Claim, from string) (a reply, err error) {
	fail := func(kind, err error) (reply, error) {
		return reply{}, &strategy.ServerError{Node: p.url, Kind: kind, Err: err}
	}
	if ctx.Err() != nil {
		return fail(strategy.ErrUnsent, ctx.Err())
	}
	if !c.Due.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.Due)
		defer cancel()
	}
	c.Due = time.Time{} // a request that comes late takes effect all the same
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(request{move, c, from}); err != nil {
		return fail(strategy.ErrUnsent, err)
	}
	question, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/"+move, &body)
	if err != nil {
		return fail(strategy.ErrUnsent, err)
	}
	response, err := p.http.Do(question)
	if err != nil {
		return fail(strategy.ErrUnknown, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fail(strategy.ErrRefused, fmt.Errorf("status %s", response.Status))
	}
	if err := gob.NewDecoder(response.Body).Decode(&a); err != nil {
		return fail(strategy.ErrUnknown, err)
	}
	switch {
	case a.Held != nil:
		return a, a.Held
	case a.Lost != nil:
		return a, a.Lost
	}
	return a, nil
}

// Acquire implements [driver.Protocol].
func (p *Client) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	a, err := p.ask(ctx, "acquire", c, "")
	return a.Grant, err
}

// Extend implements [driver.Protocol].
func (p *Client) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	a, err := p.ask(ctx, "extend", c, "")
	return a.Grant, err
}

// Adopt implements [driver.Protocol].
func (p *Client) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	a, err := p.ask(ctx, "adopt", c, from)
	return a.Grant, err
}

// Release implements [driver.Protocol].
func (p *Client) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	_, err := p.ask(ctx, "release", c, "")
	return driver.Outcome{}, err
}

// Undo implements [driver.Protocol].
func (p *Client) Undo(ctx context.Context, c driver.Claim) error {
	_, err := p.ask(ctx, "undo", c, "")
	return err
}

// ForceRelease implements [driver.Protocol].
func (p *Client) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return p.Release(ctx, c)
}

// Inspect implements [driver.Protocol].
func (p *Client) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	a, err := p.ask(ctx, "inspect", c, "")
	return a.Info, err
}

// Close gives the connections back.
func (p *Client) Close() error {
	p.http.CloseIdleConnections()
	return nil
}
