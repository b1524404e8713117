// Package httplock is a lock server over HTTP and its protocol: a lock that has
// nothing to do with Redis, in a module of its own, held to the same suite.
package httplock

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// A message is a request and its reply.
type message struct {
	Key   string        `json:",omitempty"`
	Token string        `json:",omitempty"` // asked for; in a reply, the holder's
	TTL   time.Duration `json:",omitempty"` // asked for; in a reply, what is left
	Undo  bool          `json:",omitempty"`
	From  string        `json:",omitempty"` // adopt: the token whose place is taken
	Fence uint64        `json:",omitempty"`
	OK    bool          `json:",omitempty"`
}

// A Server keeps the locks.
type Server struct {
	mu     sync.Mutex
	locks  map[string]hold
	fences map[string]uint64
	undone map[string]bool // tokens that must not be granted any more
}

type hold struct {
	token string
	until time.Time
	fence uint64
}

// NewServer returns a server without locks.
func NewServer() *Server {
	return &Server{locks: map[string]hold{}, fences: map[string]uint64{}, undone: map[string]bool{}}
}

// ServeHTTP does what the last part of the path says.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	moves := map[string]func(message) message{
		"/acquire": s.acquire, "/extend": s.extend, "/adopt": s.adopt, "/release": s.release, "/inspect": s.inspect, "/evict": s.evict,
	}
	move, ok := moves[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	reply := move(m)
	s.mu.Unlock()
	json.NewEncoder(w).Encode(reply)
}

// at is what the key holds now; the zero hold if nothing.
func (s *Server) at(key string) hold {
	h := s.locks[key]
	if !time.Now().Before(h.until) {
		delete(s.locks, key)
		return hold{}
	}
	return h
}

func (s *Server) acquire(m message) message {
	h := s.at(m.Key)
	if h.token != "" || s.undone[m.Token] {
		return message{Token: h.token, TTL: max(time.Until(h.until), 0)}
	}
	s.fences[m.Key]++
	s.locks[m.Key] = hold{m.Token, time.Now().Add(m.TTL), s.fences[m.Key]}
	return message{OK: true, Fence: s.fences[m.Key]}
}

func (s *Server) extend(m message) message {
	h := s.at(m.Key)
	if h.token != m.Token {
		return message{Token: h.token}
	}
	h.until = time.Now().Add(m.TTL)
	s.locks[m.Key] = h
	return message{OK: true, Fence: h.fence}
}

func (s *Server) adopt(m message) message {
	h := s.at(m.Key)
	if h.token != m.From {
		return message{Token: h.token}
	}
	s.fences[m.Key]++
	s.locks[m.Key] = hold{m.Token, time.Now().Add(m.TTL), s.fences[m.Key]}
	return message{OK: true, Fence: s.fences[m.Key]}
}

func (s *Server) release(m message) message {
	if m.Undo {
		s.undone[m.Token] = true // the acquire may come only now
	}
	h := s.at(m.Key)
	if h.token != m.Token {
		return message{Token: h.token, OK: m.Undo}
	}
	delete(s.locks, m.Key)
	return message{OK: true}
}

func (s *Server) inspect(m message) message {
	h := s.at(m.Key)
	return message{Token: h.token, TTL: max(time.Until(h.until), 0), Fence: s.fences[m.Key]}
}

func (s *Server) evict(m message) message {
	delete(s.locks, m.Key)
	return message{OK: true}
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

func (p *Client) ask(ctx context.Context, path string, due time.Time, m message) (message, error) {
	fail := func(kind, err error) (message, error) {
		return message{}, &strategy.ServerError{Node: p.url, Kind: kind, Err: err}
	}
	if ctx.Err() != nil {
		return fail(strategy.ErrUnsent, ctx.Err())
	}
	if !due.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, due)
		defer cancel()
	}
	body, err := json.Marshal(m)
	if err != nil {
		return fail(strategy.ErrUnsent, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, bytes.NewReader(body))
	if err != nil {
		return fail(strategy.ErrUnsent, err)
	}
	response, err := p.http.Do(request)
	if err != nil {
		return fail(strategy.ErrUnknown, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fail(strategy.ErrRefused, fmt.Errorf("status %s", response.Status))
	}
	var reply message
	if err := json.NewDecoder(response.Body).Decode(&reply); err != nil {
		return fail(strategy.ErrUnknown, err)
	}
	return reply, nil
}

// Acquire implements [driver.Protocol].
func (p *Client) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	r, err := p.ask(ctx, "/acquire", c.Due, message{Key: key(c), Token: c.Token, TTL: c.TTL})
	if err == nil && !r.OK {
		err = &strategy.HeldError{Name: c.Name, Holder: r.Token, TTL: r.TTL}
	}
	return driver.Grant{Fence: r.Fence}, err
}

// Extend implements [driver.Protocol].
func (p *Client) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	r, err := p.ask(ctx, "/extend", c.Due, message{Key: key(c), Token: c.Token, TTL: c.TTL})
	if err == nil && !r.OK {
		err = &strategy.LostError{Name: c.Name, Holder: r.Token}
	}
	return driver.Grant{Fence: r.Fence}, err
}

// Adopt implements [driver.Protocol].
func (p *Client) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	r, err := p.ask(ctx, "/adopt", c.Due, message{Key: key(c), Token: c.Token, TTL: c.TTL, From: from})
	if err == nil && !r.OK {
		err = &strategy.LostError{Name: c.Name, Holder: r.Token}
	}
	return driver.Grant{Fence: r.Fence}, err
}

// Release implements [driver.Protocol].
func (p *Client) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	r, err := p.ask(ctx, "/release", c.Due, message{Key: key(c), Token: c.Token})
	if err == nil && !r.OK {
		err = &strategy.LostError{Name: c.Name, Holder: r.Token}
	}
	return driver.Outcome{}, err
}

// Undo implements [driver.Protocol].
func (p *Client) Undo(ctx context.Context, c driver.Claim) error {
	_, err := p.ask(ctx, "/release", c.Due, message{Key: key(c), Token: c.Token, Undo: true})
	return err
}

// ForceRelease implements [driver.Protocol].
func (p *Client) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return p.Release(ctx, c)
}

// Inspect implements [driver.Protocol].
func (p *Client) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	r, err := p.ask(ctx, "/inspect", c.Due, message{Key: key(c)})
	if err != nil || r.Token == "" {
		return strategy.Info{Fence: r.Fence}, err
	}
	return strategy.Info{Held: true, Token: r.Token, TTL: r.TTL, Fence: r.Fence}, nil
}

// Close gives the connections back.
func (p *Client) Close() error {
	p.http.CloseIdleConnections()
	return nil
}

// key survives JSON, which knows only valid UTF-8.
func key(c driver.Claim) string { return fmt.Sprintf("%x", c.Key) }
