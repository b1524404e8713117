package lessons

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/lab/diagram"
	"github.com/lockstrategies/locks/strategy"
)

// A recorder writes down what a client asks of a server.
type recorder struct {
	driver.Node
	c    *client
	srv  *server
	mu   sync.Mutex
	gate conformance.Gate
	lose string // the reply to the next request that contains this; empty: none
}

// at puts a gate in the way of the client's requests to the server from now on.
func (r *recorder) at(g conformance.Gate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gate = g
}

// loses drops the reply to the next request whose words contain that, as a network does: the
// server has done what it was asked, and the client learns that nobody knows.
func (r *recorder) loses(request string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lose = request
}

// lost reports whether the reply to a request is lost.
func (r *recorder) lost(args []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lose == "" || !strings.Contains(strings.Join(args, " "), r.lose) {
		return false
	}
	r.lose = ""
	return true
}

var errReplyLost = errors.New("the reply was dropped on its way")

func (r *recorder) pass(request string, send func()) {
	r.mu.Lock()
	g := r.gate
	r.mu.Unlock()
	if g == nil {
		send()
		return
	}
	g(request, send)
}

// asks writes a request down, and what came of it.
func (r *recorder) asks(args []string, do func() (any, error)) (any, error) {
	e := Event{Kind: Send, From: r.c.name, To: r.srv.name, Args: args}
	call, ok := asCall(args)
	if ok {
		e.Means = call.means()
	}
	r.c.s.pause(e)
	of := r.c.s.add(e)
	v, err := do()
	if err == nil && r.lost(args) {
		r.c.s.note("the reply, %s, is dropped on its way to %s", diagram.AnswerText(v, nil), r.c.name)
		v, err = nil, &strategy.ServerError{Node: r.srv.name, Kind: strategy.ErrUnknown, Err: errReplyLost}
	}
	if of < 0 {
		return v, err
	}
	back := Event{Kind: Reply, From: r.srv.name, To: r.c.name, Of: of, Answer: diagram.AnswerText(v, err)}
	if e.Means != "" && err == nil {
		back.Means = call.answers(v)
	}
	r.c.s.add(back)
	return v, err
}

func (r *recorder) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
	all := words(cmd, args)
	if key != "" {
		all = append([]string{cmd, key}, all[1:]...)
	}
	return r.asks(all, func() (any, error) { return r.Node.Do(ctx, due, cmd, key, args...) })
}

func (r *recorder) Eval(ctx context.Context, due time.Time, script *driver.Script, keys []string, args ...any) (any, error) {
	all := append([]string{"EVALSHA", script.Name() + ".lua", fmt.Sprint(len(keys))}, keys...)
	all = append(all, words("", args)[1:]...)
	r.c.s.ran(script)
	return r.asks(all, func() (any, error) { return r.Node.Eval(ctx, due, script, keys, args...) })
}

func (r *recorder) Session(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error {
	return r.Node.Session(ctx, due, key, func(c driver.Conn) error { return fn(recordedConn{r, c}) })
}

func (r *recorder) Subscribe(ctx context.Context, channel string, fn func(msg []byte, err error)) (stop func(), err error) {
	r.asks([]string{"SUBSCRIBE", channel}, func() (any, error) {
		stop, err = r.Node.Subscribe(ctx, channel, func(msg []byte, err error) {
			if err == nil {
				taken, ok := r.c.listening()
				if !ok {
					return
				}
				defer taken()
				r.c.s.add(Event{Kind: Message, From: r.srv.name, To: r.c.name, Args: []string{channel}, Answer: string(msg), Means: hearsay(string(msg))})
			}
			fn(msg, err)
		})
		return "OK", err
	})
	return stop, err
}

type recordedConn struct {
	r *recorder
	driver.Conn
}

func (c recordedConn) Do(cmd string, args ...any) (any, error) {
	shown := words(cmd, args)
	if cmd == "EVALSHA" {
		shown[1] = c.r.c.s.called(shown[1])
	}
	return c.r.asks(shown, func() (any, error) { return c.Conn.Do(cmd, args...) })
}

// words are a command as it is written down.
func words(cmd string, args []any) []string {
	all := []string{cmd}
	for _, a := range args {
		switch a := a.(type) {
		case []byte:
			all = append(all, string(a))
		default:
			all = append(all, fmt.Sprint(a))
		}
	}
	return all
}
