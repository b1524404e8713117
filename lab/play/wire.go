package play

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/lab/diagram"
	"github.com/lockstrategies/locks/strategy"
)

// The kinds of message.
const (
	request      = "request"
	reply        = "reply"
	notification = "message"
)

// A message is on its way between a client and a server, or the database.
type message struct {
	n      int // from 1; 0: the stage has not seen it yet
	kind   string
	client *client
	server string
	at     int    // the server's place
	text   string // what it says
	arrive func() // the stage calls it when the message arrives
	late   bool   // nobody waits for the answer any more
}

// words are the message for people.
func (m *message) words() string {
	from, to := m.client.name, m.server
	if m.kind != request {
		from, to = to, from
	}
	return fmt.Sprintf("%s → %s: %s", from, to, m.text)
}

// post puts a message on the wire.
func (s *Stage) post(m *message) {
	s.mu.Lock()
	s.posted = append(s.posted, m)
	s.mu.Unlock()
	s.wake()
}

// take gives each message that has been posted its number, and says what is sent and does not arrive. They are many
// where several servers are asked at once, in no order: so the servers' order is theirs.
func (s *Stage) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.posted, func(a, b *message) int {
		return cmp.Or(cmp.Compare(a.client.at, b.client.at), cmp.Compare(a.at, b.at))
	})
	for i, m := range s.posted {
		s.number++
		m.n = s.number
		said := slices.ContainsFunc(s.wire, func(o *message) bool { return o.kind == request && o.client == m.client && o.text == m.text })
		s.wire = append(s.wire, m)
		if said || m.kind != request || m.client.delivers() {
			continue
		}
		to := []string{m.server}
		for _, o := range s.posted[i+1:] {
			if o.client == m.client && o.text == m.text && !slices.Contains(to, o.server) {
				to = append(to, o.server)
			}
		}
		s.note("%s sends to %s, and it is on the wire: %s", m.client.name, strings.Join(to, " "), m.text)
	}
	s.posted = nil
}

// first reports whether no other message has to arrive before this one. One whose sender has given it up went over
// a connection of its own.
func (s *Stage) first(m *message) bool {
	i := slices.IndexFunc(s.wire, func(o *message) bool {
		return o.client == m.client && o.at == m.at && o.kind == m.kind && !o.late
	})
	return m.late || s.wire[i] == m
}

func (s *Stage) arrive(m *message) {
	s.drop(m)
	m.arrive()
}

// drop takes a message off the wire.
func (s *Stage) drop(m *message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := func(o *message) bool { return o == m }
	s.wire, s.posted = slices.DeleteFunc(s.wire, same), slices.DeleteFunc(s.posted, same)
}

// onWire reports whether a message has neither arrived nor got lost.
func (s *Stage) onWire(m *message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.wire, m) || slices.Contains(s.posted, m)
}

// A link is the way of one client to one server: a Node whose requests, replies and notifications are messages.
type link struct {
	driver.Node // the client's connections
	c           *client
	srv         *server
	overtook    atomic.Bool // a request that was given up may still arrive
}

var (
	errDown  = errors.New("connection refused")
	errBroke = errors.New("the connection broke")
	errDead  = errors.New("the process has ended")
)

func (l *link) Name() string  { return l.srv.name }
func (l *link) Ordered() bool { return !l.overtook.Load() }

func (l *link) failed(kind, err error) error {
	return &strategy.ServerError{Node: l.srv.name, Kind: kind, Err: err}
}

// unreachable says why nothing can be sent. A paused client does not find out.
func (l *link) unreachable(ctx context.Context, due time.Time) error {
	if err := timeup.Ended(ctx); err != nil {
		return l.failed(strategy.ErrUnsent, err)
	}
	switch s := l.c.s; {
	case !due.IsZero() && !time.Now().Before(due):
		return l.failed(strategy.ErrUnsent, timeup.Err)
	case l.c.ended.Err() != nil:
		return l.failed(strategy.ErrUnsent, errDead)
	case !s.locked(func() bool { return l.srv.up || l.c.paused || l.c.byHand }):
		return l.failed(strategy.ErrUnsent, errDown)
	}
	return nil
}

// ask sends a request, and waits for the answer. A fragile one does not arrive once its caller waits no longer.
func (l *link) ask(ctx context.Context, due time.Time, args []string, fragile bool, do func(context.Context) (any, error)) (any, error) {
	if err := l.unreachable(ctx, due); err != nil {
		return nil, err
	}
	answered := make(chan answer, 1)
	m := &message{kind: request, client: l.c, server: l.srv.name, at: l.srv.at}
	m.text = l.c.s.names.command(args)
	m.arrive = func() { l.arrives(m, args, answered, do) }
	l.c.s.post(m)
	var timeout <-chan time.Time
	if !due.IsZero() {
		t := time.NewTimer(time.Until(due))
		defer t.Stop()
		timeout = t.C
	}
	cause := timeup.Err
	select {
	case a := <-answered:
		return a.value, a.err
	case <-timeout:
	case <-l.c.ended.Done():
		cause = errDead
	case <-ctx.Done():
		cause = context.Cause(ctx)
	}
	if l.c.s.onWire(m) {
		if fragile {
			l.c.s.drop(m)
		} else {
			l.overtook.Store(true)
		}
	}
	l.c.s.locked(func() bool { m.late = true; return true })
	l.c.s.wake()
	return nil, l.failed(strategy.ErrUnknown, cause)
}

// An answer is what came of a request.
type answer struct {
	value any
	err   error
}

// arrives brings a request to the server, and its answer on the wire.
func (l *link) arrives(m *message, args []string, answered chan answer, do func(context.Context) (any, error)) {
	s := l.c.s
	of := s.add(diagram.Event{Kind: diagram.Send, From: l.c.name, To: l.srv.name, Args: args})
	var a answer
	if !l.srv.up {
		a.err = l.failed(strategy.ErrUnknown, errBroke)
	} else {
		l.srv.tick()
		a.value, a.err = do(context.Background())
		l.srv.look()
	}
	text := a.text()
	back := diagram.Event{Kind: diagram.Reply, From: l.srv.name, To: l.c.name, Of: of, Answer: text}
	if m.late || l.c.ended.Err() != nil {
		if stop, ok := a.value.(func()); ok {
			stop()
		}
		back.Answer += " (nobody waits for it)"
		s.add(back)
		return
	}
	r := &message{kind: reply, client: l.c, server: l.srv.name, at: l.srv.at, text: s.names.brief(text)}
	r.arrive = func() {
		if m.late {
			back.Answer += " (nobody waits for it)"
		}
		s.add(back)
		answered <- a
	}
	s.post(r)
}

// text is the answer for people.
func (a answer) text() string {
	if _, ok := a.value.(func()); ok {
		return "OK"
	}
	return diagram.AnswerText(a.value, a.err)
}

// soon is when a request that has arrived is answered at the latest: servers answer at once.
func soon() time.Time { return time.Now().Add(time.Minute) }

func (l *link) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
	all := append([]string{cmd, key}, texts(args)...)
	if key == "" {
		all = slices.Delete(all, 1, 2)
	}
	return l.ask(ctx, due, all, false, func(ctx context.Context) (any, error) { return l.Node.Do(ctx, soon(), cmd, key, args...) })
}

func (l *link) Eval(ctx context.Context, due time.Time, script *driver.Script, keys []string, args ...any) (any, error) {
	keys, args = slices.Clone(keys), slices.Clone(args)
	all := slices.Concat([]string{"EVALSHA", script.Name() + ".lua", fmt.Sprint(len(keys))}, keys, texts(args))
	return l.ask(ctx, due, all, false, func(ctx context.Context) (any, error) { return l.Node.Eval(ctx, soon(), script, keys, args...) })
}

func (l *link) Session(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error {
	if err := l.unreachable(ctx, due); err != nil {
		return err
	}
	return l.Node.Session(ctx, due.Add(time.Minute), key, func(c driver.Conn) error { return fn(session{c, l, ctx, due}) })
}

// A session is a connection that one call has for itself.
type session struct {
	driver.Conn
	l   *link
	ctx context.Context
	due time.Time
}

func (s session) Do(cmd string, args ...any) (any, error) {
	all := append([]string{cmd}, texts(args)...)
	return s.l.ask(s.ctx, s.due, all, true, func(context.Context) (any, error) { return s.Conn.Do(cmd, args...) })
}

func (l *link) Subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (func(), error) {
	var over atomic.Bool
	v, err := l.ask(ctx, time.Time{}, []string{"SUBSCRIBE", channel}, true, func(ctx context.Context) (any, error) {
		stop, err := l.Node.Subscribe(ctx, channel, func(msg []byte, err error) {
			if err != nil {
				fn(nil, err)
				return
			}
			l.hears(string(msg), func() {
				if !over.Load() {
					fn(msg, nil)
				}
			})
		})
		return stop, err
	})
	if err != nil {
		return nil, err
	}
	return func() {
		over.Store(true)
		v.(func())()
	}, nil
}

// hears puts on the wire what was published.
func (l *link) hears(text string, take func()) {
	s := l.c.s
	m := &message{kind: notification, client: l.c, server: l.srv.name, at: l.srv.at, text: s.names.brief(text)}
	m.arrive = func() {
		s.add(diagram.Event{Kind: diagram.Message, From: l.srv.name, To: l.c.name, Answer: text})
		take()
	}
	s.post(m)
}

// Probe asks for a sign of life. The page does not show that: the engine asks several times in a TTL.
func (l *link) Probe(ctx context.Context, due time.Time) uint64 {
	if l.unreachable(ctx, due) != nil || l.c.s.locked(func() bool { return l.c.paused || !l.srv.up }) {
		return 0
	}
	return l.Node.Probe(ctx, due)
}

func (s *Stage) locked(what func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return what()
}

func texts(args []any) (all []string) {
	for _, a := range args {
		if b, ok := a.([]byte); ok {
			a = string(b)
		}
		all = append(all, strings.ToValidUTF8(fmt.Sprint(a), "?"))
	}
	return all
}
