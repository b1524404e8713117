package lessons

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/lab/diagram"
)

// A plainConn is one plain connection of a client to a server of ours, over a network of its own:
// what is sent on it stays in order, and nobody minds what is sent on others.
type plainConn struct {
	c       *client
	srv     *server
	link    *rig.Link
	conn    redis.Conn
	id      int64 // the server's name of it
	hungUp  bool
	waiting []int // the commands that are not answered yet
}

// dials has the client open one more connection.
func (c *client) dials(srv *server) *plainConn {
	if srv.node == nil {
		c.s.Cannot("%s is not ours, so its network cannot be held up", srv.name)
	}
	l := &plainConn{c: c, srv: srv, link: srv.node.Link()}
	conn, err := l.link.Pool().DialContext(c.s.ctx)
	if err != nil {
		c.s.Cannot("%s does not reach %s: %w", c.name, srv.name, err)
	}
	l.conn = conn
	if l.id, err = redis.Int64(conn.Do("CLIENT", "ID")); err != nil {
		c.s.Cannot("CLIENT ID: %w", err)
	}
	c.s.ending = append(c.s.ending, func() { conn.Close() })
	return l
}

// sends gives a command to the network, and waits for nothing.
func (l *plainConn) sends(cmd string, args ...any) {
	l.carries(words(cmd, args), cmd, args...)
}

// evals is sends for a script and one key. It sends the source: a client that cannot wait
// for an answer does not learn that the server does not know the script.
func (l *plainConn) evals(script *driver.Script, key string, args ...any) {
	l.c.s.ran(script)
	all := append([]string{"EVAL", script.Name() + ".lua", "1", key}, words("", args)[1:]...)
	l.carries(all, "EVAL", append([]any{script.Source(), 1, key}, args...)...)
}

func (l *plainConn) carries(shown []string, cmd string, args ...any) {
	s := l.c.s
	e := Event{Kind: Send, From: l.c.name, To: l.srv.name, Args: shown}
	s.pause(e)
	if err := errors.Join(l.conn.Send(cmd, args...), l.conn.Flush()); err != nil {
		s.Cannot("%s: %s: %w", l.c.name, cmd, err)
	}
	l.waiting = append(l.waiting, s.add(e))
}

// receives waits for the next answer, for this time at most, and then hangs up.
func (l *plainConn) receives(within time.Duration) (reply, bool) {
	s, of := l.c.s, l.waiting[0]
	l.waiting = l.waiting[1:]
	v, err := redis.ReceiveWithTimeout(l.conn, within)
	s.waited()
	e := Event{Kind: Reply, From: l.srv.name, To: l.c.name, Of: of}
	var said redis.Error
	switch {
	case errors.As(err, &said):
		s.Cannot("%s: %w", l.c.name, said)
	case err != nil:
		l.conn.Close()
		l.hungUp = true
		e.Answer = "(no answer)"
	default:
		e.Answer = diagram.AnswerText(v, nil)
	}
	s.add(e)
	if text, ok := v.(string); ok { // a status
		v = []byte(text)
	}
	return reply{v}, err == nil
}

// hears is receives for those who are sure of an answer.
func (l *plainConn) hears() reply {
	v, ok := l.receives(10 * time.Second)
	if !ok {
		l.c.s.Cannot("%s gets no answer from %s", l.c.name, l.srv.name)
	}
	return v
}

// From now on holdUp keeps what is sent on this line on the way, until it arrives.
func (l *plainConn) holdUp() {
	l.c.s.happens("what "+l.c.name+" sends from here on is held up on the way", func(context.Context) error {
		l.link.Hold(rig.Requests)
		return nil
	})
}

// arrives is the end of that. If the client has hung up, it returns when the server has read
// what was sent before, or has closed the connection.
func (l *plainConn) arrives(what string) {
	l.c.s.happens(what, func(context.Context) error {
		l.link.Heal()
		if l.hungUp {
			return l.srv.ends(l.id)
		}
		return nil
	})
}

// ends waits until a connection that its client has hung up is gone from the server's list.
func (srv *server) ends(id int64) error {
	for limit := time.Now().Add(10 * time.Second); len(srv.ask("CLIENT", "LIST", "ID", id).([]byte)) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			return errors.New("the server does not end the connection")
		}
	}
	return nil
}
