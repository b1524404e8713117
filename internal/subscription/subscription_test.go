// The subscriptions of a client in memory, in virtual time: every rule that does not depend on a client.
package subscription

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A memory is a client whose servers are in memory. A channel's server is what its name begins with.
type memory struct {
	mu    sync.Mutex
	conns []*conn

	dial   func(ctx context.Context) error        // nil: at once
	serve  func(c *conn, r *Request) []Event      // nil: plainly
	wrap   func(c *conn) Conn                     // nil: it is read
	stale  func(born, used time.Time) bool        // nil: never
	home   string                                 // of all channels; empty: each has its own
	lost   error                                  // a channel has no home
	writes func(c *conn, requests []string) error // nil: they succeed
}

func (m *memory) Home(_ context.Context, channel string) (any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.home != "" {
		return m.home, nil
	}
	return channel[:1], m.lost
}

// moves has every channel at one server.
func (m *memory) moves(to string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.home = to
}

func (m *memory) Dial(ctx context.Context, ln *Link) (Conn, error) {
	if m.dial != nil {
		if err := m.dial(ctx); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &conn{m: m, ln: ln, events: make(chan Event, 100), ended: make(chan struct{})}
	m.conns = append(m.conns, c)
	if m.wrap != nil {
		return m.wrap(c), nil
	}
	return c, nil
}

func (m *memory) Stale(born, used time.Time) bool { return m.stale != nil && m.stale(born, used) }

func (m *memory) Failed(server any, kind, err error) error {
	return &strategy.ServerError{Node: fmt.Sprint(server), Kind: kind, Err: err}
}

// at is the connection that was made as the i-th.
func (m *memory) at(i int) *conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conns[i]
}

// sent is what all connections have sent, and how many were closed.
func (m *memory) sent() (all []string, closed int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, c := range m.conns {
		for _, r := range c.log {
			all = append(all, fmt.Sprint(i, " ", r))
		}
		select {
		case <-c.ended:
			closed++
		default:
		}
	}
	return all, closed
}

type conn struct {
	m      *memory
	ln     *Link
	log    []string
	stuck  bool // a request was not answered: a server keeps the order
	events chan Event
	once   sync.Once
	ended  chan struct{}
}

func (c *conn) Close() { c.once.Do(func() { close(c.ended) }) }

func plainly(_ *conn, r *Request) []Event { return []Event{{Cmd: r.Cmd, Channel: r.Channel}} }

func (c *conn) Write(requests []*Request) ([]error, error) {
	serve := c.m.serve
	if serve == nil {
		serve = plainly
	}
	var words []string
	for _, r := range requests {
		words = append(words, strings.TrimSpace(r.Cmd+" "+r.Channel))
	}
	c.m.mu.Lock()
	c.log = append(c.log, words...)
	c.m.mu.Unlock()
	if c.m.writes != nil {
		if err := c.m.writes(c, words); err != nil {
			return nil, err
		}
	}
	for _, r := range requests {
		events := serve(c, r)
		if c.stuck = c.stuck || len(events) == 0; c.stuck {
			break
		}
		for _, e := range events {
			c.events <- e
		}
	}
	return nil, nil
}

func (c *conn) Read(limit time.Duration) (Event, error) {
	select {
	case e := <-c.events:
		return e, nil
	default:
	}
	select {
	case e := <-c.events:
		return e, nil
	case <-c.ended:
		return Event{}, errCut
	case <-time.After(limit):
		return Event{}, os.ErrDeadlineExceeded
	}
}

func (c *conn) message(channel, msg string) {
	c.events <- Event{Message: true, Channel: channel, Payload: []byte(msg)}
	synctest.Wait()
}

// An asker is a connection that waits for its answers.
type asker struct{ c *conn }

func (a asker) Close() { a.c.Close() }

func (a asker) Write(requests []*Request) ([]error, error) {
	a.c.Write(requests) //nolint:errcheck // below
	var answers []error
	for range requests {
		e, err := a.c.Read(time.Hour)
		if err != nil {
			return nil, err
		}
		answers = append(answers, e.Refusal)
	}
	return answers, nil
}

// bubble runs a test in a bubble, on a Subscriber that is closed at its end.
func bubble(t *testing.T, m *memory, test func(t *testing.T, s *Subscriber)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(m)
		test(t, s)
		s.Close()
		s.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		for i, c := range m.conns {
			select {
			case <-c.ended:
			default:
				t.Errorf("connection %d is open after Close", i)
			}
		}
	})
}

// Words are what a subscription hears.
type words struct {
	stop func()
	mu   sync.Mutex
	msgs []string
	ends []error
}

func (w *words) hear(msg []byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.ends = append(w.ends, err)
		return
	}
	w.msgs = append(w.msgs, string(msg))
}

func (w *words) all() (msgs []string, ends []error) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.msgs, w.ends
}

// on subscribes.
func on(t *testing.T, s *Subscriber, channel string) *words {
	t.Helper()
	w, out := begin(t.Context(), s, channel)
	if err := <-out; err != nil {
		t.Fatalf("Subscribe(%s) = %v", channel, err)
	}
	return w
}

// begin subscribes in the background.
func begin(ctx context.Context, s *Subscriber, channel string) (*words, <-chan error) {
	w, out := &words{}, make(chan error, 1)
	go func() {
		stop, err := s.Subscribe(ctx, channel, w.hear)
		w.stop = stop
		out <- err
	}()
	return w, out
}

func (w *words) want(t *testing.T, what string, msgs ...string) {
	t.Helper()
	if got, ends := w.all(); !slices.Equal(got, msgs) || len(ends) > 0 {
		t.Errorf("%s: heard %q and ends %v, want %q and none", what, got, ends, msgs)
	}
}

// ended checks that a subscription has ended once, for that reason.
func (w *words) ended(t *testing.T, what string, why error) {
	t.Helper()
	if _, ends := w.all(); len(ends) != 1 || !errors.Is(ends[0], strategy.ErrUnknown) || !errors.Is(ends[0], why) {
		t.Errorf("%s: ends %v, want one, %v", what, ends, why)
	}
}

func wantErr(t *testing.T, what string, err error, all ...error) {
	t.Helper()
	for _, want := range all {
		if !errors.Is(err, want) {
			t.Errorf("%s = %v, want %v", what, err, want)
		}
	}
}

func (m *memory) want(t *testing.T, what string, closed int, sent ...string) {
	t.Helper()
	synctest.Wait()
	if got, shut := m.sent(); !slices.Equal(got, sent) || shut != closed {
		t.Errorf("%s: sent %q, %d connections closed, want %q, %d", what, got, shut, sent, closed)
	}
}

func wantConns(t *testing.T, s *Subscriber, what string, all, rest int) {
	t.Helper()
	synctest.Wait()
	if a, r := s.Connections(); a != all || r != rest {
		t.Errorf("%s: %d connections, %d at rest, want %d, %d", what, a, r, all, rest)
	}
}

// Any number listen to one channel, on one connection, which stays after the last, and carries the next.
func TestOneConnection(t *testing.T) {
	m := &memory{}
	bubble(t, m, func(t *testing.T, s *Subscriber) {
		wantConns(t, s, "before", 0, 0)
		a, b, c := on(t, s, "a1"), on(t, s, "a1"), on(t, s, "a2")
		wantConns(t, s, "with subscriptions", 1, 0)
		m.want(t, "two channels", 0, "0 SUBSCRIBE a1", "0 SUBSCRIBE a2")
		m.at(0).message("a1", "x")
		m.at(0).message("else", "y")
		a.stop()
		a.stop()
		m.at(0).message("a1", "z")
		a.want(t, "who stopped", "x")
		b.want(t, "who stayed", "x", "z")
		c.want(t, "another channel")
		b.stop()
		m.want(t, "the last of a channel", 0, "0 SUBSCRIBE a1", "0 SUBSCRIBE a2", "0 UNSUBSCRIBE a1")
		wantConns(t, s, "with one", 1, 0)
		c.stop()
		wantConns(t, s, "at rest", 1, 1)
		time.Sleep(time.Hour)
		on(t, s, "a1")
		m.want(t, "after the rest", 0, "0 SUBSCRIBE a1", "0 SUBSCRIBE a2", "0 UNSUBSCRIBE a1", "0 UNSUBSCRIBE a2", "0 SUBSCRIBE a1")
		on(t, s, "b")
		wantConns(t, s, "of two servers", 2, 0)
		if got := m.at(0).ln.Channels(); !slices.Equal(got, []string{"a1"}) || m.at(1).ln.Channel != "b" || m.at(1).ln.Server != "b" {
			t.Errorf("channels %v; the other link is that of %v, for %q", got, m.at(1).ln.Server, m.at(1).ln.Channel)
		}
	})
}

// A connection that waits for its answers is like one that is read.
func TestConnectionThatWaits(t *testing.T) {
	m := &memory{
		wrap: func(c *conn) Conn { return asker{c} },
		serve: func(c *conn, r *Request) []Event {
			switch {
			case r.Channel == "a silent":
				return nil
			case r.Channel == "a forbidden" && r.Cmd == Subscribe:
				return []Event{{Refusal: errors.New("NOPERM")}}
			}
			return plainly(c, r)
		},
	}
	bubble(t, m, func(t *testing.T, s *Subscriber) {
		a := on(t, s, "a1")
		_, err := s.Subscribe(t.Context(), "a forbidden", nil)
		wantErr(t, "a channel that is forbidden", err, strategy.ErrRefused)
		m.at(0).ln.Hear("a1", []byte("x"))
		a.want(t, "after a refusal", "x")
		time.Sleep(PingEvery)
		m.want(t, "a PING", 0, "0 SUBSCRIBE a1", "0 SUBSCRIBE a forbidden", "0 PING")
		a.stop()
		wantConns(t, s, "at rest", 1, 1)
		m.at(0).ln.Hear("a1", []byte("late")) // an answer that came with it shows that it lives
		b := on(t, s, "a2")
		_, out := begin(t.Context(), s, "a silent")
		synctest.Wait()
		m.at(0).Close()
		wantErr(t, "one that waits", <-out, strategy.ErrUnknown, errCut)
		b.ended(t, "the end", errCut)
	})
}

// A connection with subscriptions is asked every three seconds whether it lives, and ends two seconds after a question
// that gets no answer. At rest it is not asked.
func TestPings(t *testing.T) {
	var mute atomic.Bool
	m := &memory{serve: func(c *conn, r *Request) []Event {
		if mute.Load() {
			return nil
		}
		return plainly(c, r)
	}}
	bubble(t, m, func(t *testing.T, s *Subscriber) {
		pings := func(want int) {
			t.Helper()
			synctest.Wait()
			sent, _ := m.sent()
			if got := strings.Count(strings.Join(sent, ","), Ping); got != want {
				t.Errorf("%d PINGs, want %d", got, want)
			}
		}
		a := on(t, s, "a1")
		time.Sleep(PingEvery - 1)
		pings(0)
		time.Sleep(time.Nanosecond)
		pings(1)
		time.Sleep(9 * PingEvery)
		pings(10)
		a.stop()
		wantConns(t, s, "after PINGs", 1, 1)
		time.Sleep(time.Minute)
		pings(10)
		a = on(t, s, "a1")
		time.Sleep(PingEvery - 1)
		pings(10)
		mute.Store(true)
		began := time.Now()
		for _, ends := a.all(); len(ends) == 0; _, ends = a.all() {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > PingEvery+PongLimit+time.Millisecond || took < PongLimit {
			t.Errorf("a silent server was found out after %v", took)
		}
		a.ended(t, "the end", os.ErrDeadlineExceeded)
		time.Sleep(time.Minute)
		pings(11)
	})
}

// A break ends all that is subscribed on the connection, once; the next to subscribe has another connection.
func TestBreak(t *testing.T) {
	m := &memory{}
	bubble(t, m, func(t *testing.T, s *Subscriber) {
		a, b := on(t, s, "a1"), on(t, s, "a1")
		b.stop()
		other := on(t, s, "b1")
		m.at(0).Close()
		a.ended(t, "the end", errCut)
		a.stop()
		m.at(0).ln.Break(errCut)
		m.at(0).ln.Hear("a1", nil)
		m.at(0).ln.take(Event{})
		b.want(t, "who has stopped")
		other.want(t, "at another server")
		c := on(t, s, "a1")
		m.at(2).message("a1", "x")
		c.want(t, "on the new connection", "x")
		m.want(t, "all", 1, "0 SUBSCRIBE a1", "1 SUBSCRIBE b1", "2 SUBSCRIBE a1")
	})
}

// A SUBSCRIBE that is not answered may have taken effect, on a connection that has answered before; on one that was
// at rest, or is left for that of a primary, it is tried again on another.
func TestNotAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		rest  bool
		end   func(m *memory, s *Subscriber)
		again bool
	}{
		"broken":       {false, func(m *memory, _ *Subscriber) { m.at(0).Close() }, false},
		"dead at rest": {true, func(m *memory, _ *Subscriber) { m.at(0).Close() }, true},
		"silent since": {true, func(*memory, *Subscriber) {}, true},
		"answered since": {true, func(m *memory, s *Subscriber) {
			m.at(0).events <- Event{Cmd: Unsubscribe, Channel: "a0"}
			m.at(0).Close()
		}, false},
		"alive since":     {true, func(m *memory, _ *Subscriber) { m.at(0).message("else", ""); m.at(0).Close() }, false},
		"left":            {false, func(_ *memory, s *Subscriber) { s.Leave(func(c Conn) bool { return c != nil }) }, true},
		"another is left": {false, func(m *memory, s *Subscriber) { s.Leave(func(Conn) bool { return false }); m.at(0).Close() }, false},
		"moved": {false, func(m *memory, s *Subscriber) {
			m.moves("b")
			s.Move(func(at any, ch string) bool { return at == "a" && ch == "a2" })
		}, true},
		"another is moved": {false, func(m *memory, s *Subscriber) { s.Move(func(any, string) bool { return false }); m.at(0).Close() }, false},
		"closed at rest":   {true, func(_ *memory, s *Subscriber) { s.Close() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			m := &memory{serve: func(c *conn, r *Request) []Event {
				if r.Channel == "a2" && r.Cmd == Subscribe {
					if tries++; tries == 1 {
						return nil
					}
				}
				return plainly(c, r)
			}}
			bubble(t, m, func(t *testing.T, s *Subscriber) {
				s.PongLimit = time.Second
				first := on(t, s, "a1")
				if c.rest {
					first.stop()
					wantConns(t, s, "at rest", 1, 1)
				}
				_, out := begin(t.Context(), s, "a2")
				synctest.Wait()
				c.end(m, s)
				if err := <-out; c.again && err != nil {
					t.Errorf("Subscribe = %v, want nil", err)
				} else if !c.again {
					wantErr(t, "Subscribe", err, strategy.ErrUnknown)
				}
				if want := map[bool]int{true: 2, false: 1}[c.again]; tries != want {
					t.Errorf("%d tries, want %d", tries, want)
				}
			})
		})
	}
}

// Each subscription to a server that was left, or whose slot has moved, ends with the reason; the connection of a moved
// one stays.
func TestLeftAndMoved(t *testing.T) {
	m := &memory{}
	bubble(t, m, func(t *testing.T, s *Subscriber) {
		a, stays, b := on(t, s, "a1"), on(t, s, "a2"), on(t, s, "b1")
		s.Move(func(at any, channel string) bool { return channel == "a1" })
		a.ended(t, "moved", ErrMoved)
		a.stop()
		m.want(t, "moved", 0, "0 SUBSCRIBE a1", "0 SUBSCRIBE a2", "0 UNSUBSCRIBE a1", "1 SUBSCRIBE b1")
		s.Leave(func(c Conn) bool { return c == Conn(m.at(0)) })
		stays.ended(t, "left", ErrReplaced)
		b.want(t, "the other server's")
		wantConns(t, s, "of the other server", 1, 0)
	})
}

// Who subscribes while the connection is being made leaves unsent: with its context, after five seconds, when the dial
// fails, or with Close. The dial ends with the link.
func TestDial(t *testing.T) {
	why := errors.New("nobody there")
	for name, c := range map[string]struct {
		end  func(s *Subscriber, fail chan<- error, cancel context.CancelCauseFunc)
		want error
	}{
		"fails":       {func(_ *Subscriber, fail chan<- error, _ context.CancelCauseFunc) { fail <- why }, why},
		"given up":    {func(_ *Subscriber, _ chan<- error, cancel context.CancelCauseFunc) { cancel(why) }, why},
		"takes long":  {func(*Subscriber, chan<- error, context.CancelCauseFunc) { time.Sleep(ConfirmLimit) }, os.ErrDeadlineExceeded},
		"ends: Close": {func(s *Subscriber, _ chan<- error, _ context.CancelCauseFunc) { s.Close() }, strategy.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			m := &memory{}
			bubble(t, m, func(t *testing.T, s *Subscriber) {
				fail, ended := make(chan error), false
				m.dial = func(ctx context.Context) error {
					select {
					case err := <-fail:
						return err
					case <-ctx.Done():
						ended = true
						return context.Cause(ctx)
					}
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				_, out := begin(ctx, s, "a1")
				_, other := begin(ctx, s, "a2")
				synctest.Wait()
				c.end(s, fail, cancel)
				for _, out := range []<-chan error{out, other} {
					wantErr(t, "Subscribe", <-out, strategy.ErrUnsent, c.want)
				}
				time.Sleep(ConfirmLimit)
				synctest.Wait()
				if name != "fails" && !ended {
					t.Error("the dial goes on")
				}
				wantConns(t, s, "then", 0, 0)
			})
		})
	}
}

// A dial that is left is done again for those who wait.
func TestDialIsLeft(t *testing.T) {
	m := &memory{}
	bubble(t, m, func(t *testing.T, s *Subscriber) {
		let, dials := make(chan bool), 0
		m.dial = func(ctx context.Context) error {
			if dials++; dials == 1 {
				<-ctx.Done()
				<-let
			}
			return nil
		}
		_, out := begin(t.Context(), s, "a1")
		synctest.Wait()
		s.Leave(func(c Conn) bool { return c == nil })
		if err := <-out; err != nil {
			t.Errorf("Subscribe = %v, want nil", err)
		}
		close(let)
		m.want(t, "the late one is closed", 1, "0 SUBSCRIBE a1")
	})
}

// A dial that has no time left serves nobody who comes then: they get another, also before it has returned.
func TestDialHasNoTimeLeft(t *testing.T) {
	m := &memory{}
	bubble(t, m, func(t *testing.T, s *Subscriber) {
		let, dials := make(chan bool), 0
		m.dial = func(ctx context.Context) error {
			if dials++; dials == 1 {
				<-ctx.Done()
				<-let
				return context.Cause(ctx)
			}
			return nil
		}
		first, out := begin(t.Context(), s, "a1")
		wantErr(t, "the first Subscribe", <-out, strategy.ErrUnsent, os.ErrDeadlineExceeded)
		second := on(t, s, "a2")
		close(let)
		first.want(t, "the first")
		second.want(t, "the second")
		m.want(t, "then", 0, "0 SUBSCRIBE a2")
	})
}

// The end of a write is that of the connection. The connection says whether anything was sent.
func TestWriteFails(t *testing.T) {
	for want, why := range map[error]error{strategy.ErrUnknown: errCut, strategy.ErrUnsent: fmt.Errorf("%w: %w", ErrNotSent, errCut)} {
		t.Run(want.Error(), func(t *testing.T) {
			m := &memory{writes: func(*conn, []string) error { return why }}
			bubble(t, m, func(t *testing.T, s *Subscriber) {
				_, err := s.Subscribe(t.Context(), "a1", nil)
				wantErr(t, "Subscribe", err, want, errCut)
				m.want(t, "the connection", 1, "0 SUBSCRIBE a1")
			})
		})
	}
}

// A caller who leaves takes back its SUBSCRIBE, and learns what is known of it. Nobody hears what comes then.
func TestSubscribeEnds(t *testing.T) {
	m := &memory{serve: func(*conn, *Request) []Event { return nil }}
	bubble(t, m, func(t *testing.T, s *Subscriber) {
		s.PongLimit = time.Hour
		ctx, cancel := context.WithCancelCause(t.Context())
		leaver, out := begin(ctx, s, "a1")
		synctest.Wait()
		cancel(errCut)
		wantErr(t, "Subscribe", <-out, strategy.ErrUnknown, errCut)
		began := time.Now()
		_, err := s.Subscribe(t.Context(), "a2", nil)
		wantErr(t, "Subscribe without an answer", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
		if took := time.Since(began); took != ConfirmLimit {
			t.Errorf("it took %v, want %v", took, ConfirmLimit)
		}
		m.want(t, "taken back", 0, "0 SUBSCRIBE a1", "0 UNSUBSCRIBE a1", "0 SUBSCRIBE a2", "0 PING", "0 UNSUBSCRIBE a2")
		m.at(0).message("a1", "late")
		for _, r := range []Event{{Cmd: Subscribe, Channel: "a1"}, {Cmd: Unsubscribe, Channel: "a1"}, {Cmd: Subscribe, Channel: "a2"}, {Cmd: Ping}, {}} {
			wantConns(t, s, "before all is answered", 1, 0)
			m.at(0).events <- r
		}
		wantConns(t, s, "when all is answered", 1, 1)
		leaver.want(t, "who has left")
		_, err = s.Subscribe(ctx, "b", nil)
		wantErr(t, "Subscribe after the end", err, strategy.ErrUnsent, errCut)
		wantConns(t, s, "after that", 1, 1)
	})
}

// A server's refusal is the caller's, and no other's.
func TestRefused(t *testing.T) {
	m := &memory{serve: func(c *conn, r *Request) []Event {
		if r.Channel == "a2" || r.Cmd == Ping {
			return []Event{{Refusal: errors.New("NOPERM")}}
		}
		return plainly(c, r)
	}}
	bubble(t, m, func(t *testing.T, s *Subscriber) {
		a := on(t, s, "a1")
		_, err := s.Subscribe(t.Context(), "a2", nil)
		wantErr(t, "Subscribe", err, strategy.ErrRefused)
		time.Sleep(PingEvery) // which is answered, too
		m.at(0).message("a1", "x")
		a.want(t, "the other", "x")
		m.lost = errCut
		_, err = s.Subscribe(t.Context(), "a3", nil)
		if err != errCut {
			t.Errorf("Subscribe without a home = %v, want %v", err, errCut)
		}
	})
}

// A farewell, which nobody has asked for, is no answer; an answer out of its order means that the client has connected
// again.
func TestOutOfOrder(t *testing.T) {
	m := &memory{serve: func(c *conn, r *Request) []Event {
		if r.Channel == "a2" {
			r = &Request{Cmd: r.Cmd, Channel: "else"}
		}
		return plainly(c, r)
	}}
	bubble(t, m, func(t *testing.T, s *Subscriber) {
		a := on(t, s, "a1")
		m.at(0).events <- Event{Refusal: errors.New("farewell")}
		a.want(t, "a farewell")
		m.at(0).events <- Event{Cmd: Subscribe, Channel: "a1"}
		a.ended(t, "a second answer", strategy.ErrUnknown)
		_, err := s.Subscribe(t.Context(), "a2", nil)
		wantErr(t, "Subscribe that is answered for another", err, strategy.ErrUnknown)
		if err == nil || !strings.Contains(err.Error(), "nobody has asked for") {
			t.Errorf("Subscribe = %v, want that nobody has asked for this", err)
		}
	})
}

// Only a connection at rest can be too old.
func TestStale(t *testing.T) {
	m := &memory{}
	var born, used time.Duration
	m.stale = func(b, u time.Time) bool {
		born, used = time.Since(b), time.Since(u)
		return true
	}
	bubble(t, m, func(t *testing.T, s *Subscriber) {
		a := on(t, s, "a1")
		time.Sleep(time.Second)
		on(t, s, "a1").stop()
		m.at(0).message("a1", "x")
		a.stop()
		synctest.Wait()
		time.Sleep(time.Minute)
		on(t, s, "b") // of another server, which it does not wait for
		if born != time.Minute+time.Second || used != time.Minute {
			t.Errorf("born %v and used %v before, want %v, %v", born, used, time.Minute+time.Second, time.Minute)
		}
		m.want(t, "the old one is closed", 1, "0 SUBSCRIBE a1", "0 UNSUBSCRIBE a1", "1 SUBSCRIBE b")
	})
}

// Close ends all, and waits for those who hear of it; nobody subscribes after it.
func TestClose(t *testing.T) {
	m := &memory{serve: func(c *conn, r *Request) []Event {
		if r.Channel == "a silent" {
			return nil
		}
		return plainly(c, r)
	}}
	bubble(t, m, func(t *testing.T, s *Subscriber) {
		let, waited := make(chan bool), false
		if _, err := s.Subscribe(t.Context(), "a1", func([]byte, error) { <-let }); err != nil {
			t.Fatal(err)
		}
		b := on(t, s, "b1")
		_, out := begin(t.Context(), s, "a silent")
		synctest.Wait()
		s.Close()
		go func() {
			s.Wait()
			waited = true
		}()
		b.ended(t, "the end", strategy.ErrClosed)
		wantErr(t, "Subscribe", <-out, strategy.ErrUnknown, strategy.ErrClosed)
		if synctest.Wait(); waited {
			t.Error("Wait has not waited for who hears of the end")
		}
		close(let)
		if synctest.Wait(); !waited {
			t.Error("Wait waits for more")
		}
		_, err := s.Subscribe(t.Context(), "a1", nil)
		wantErr(t, "Subscribe after Close", err, strategy.ErrUnsent, strategy.ErrClosed)
		s.Leave(func(Conn) bool { return true })
		s.Move(func(any, string) bool { return true })
		wantConns(t, s, "after Close", 0, 0)
		m.want(t, "all", 2, "0 SUBSCRIBE a1", "0 SUBSCRIBE a silent", "1 SUBSCRIBE b1")
	})
}
