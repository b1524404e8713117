package lessons

import (
	"context"
	"net/url"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/lab/diagram"
)

// A server is a place at which a Redis serves.
type server struct {
	s     *Stage
	name  string
	redis *redistest.Server
	node  *rig.Node // nil: it is not ours to break
	dead  bool
}

// ask is a command of the narrator's, which is not part of the story.
func (srv *server) ask(cmd string, args ...any) any {
	var v any
	var err error
	if srv.node != nil {
		v, err = srv.node.Do(srv.s.ctx, cmd, args...)
	} else {
		c := srv.redis.Pool().Get()
		v, err = c.Do(cmd, args...)
		c.Close()
	}
	if err != nil {
		srv.s.Cannot("%s at %s: %w", cmd, srv.name, err)
	}
	return v
}

// look is a command of the narrator's that the reader sees.
func (srv *server) look(cmd string, args ...any) any {
	v := srv.ask(cmd, args...)
	srv.s.add(Event{Kind: Look, To: srv.name, Args: words(cmd, args), Answer: diagram.AnswerText(v, nil)})
	return v
}

// url is where it is, without a password.
func (srv *server) url() string {
	u, err := url.Parse(srv.redis.URL())
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}

// connect makes a connection of a client's own.
func (srv *server) connect() (driver.Node, *rig.Link) {
	if srv.node == nil {
		return redigonode.New(srv.redis.Pool()), nil
	}
	l := srv.node.Link()
	return redigonode.New(l.Pool()), l
}

// becomes says that a server is dead, frozen, …: what was done to it is done by do.
func (srv *server) becomes(c Condition, what string, do func(context.Context) error) {
	s := srv.s
	e := Event{Kind: State, From: srv.name, Condition: c, Text: srv.name + " " + what}
	s.pause(e)
	if err := do(s.ctx); err != nil {
		s.Cannot("%s %s: %w", srv.name, what, err)
	}
	s.waited()
	s.add(e)
	srv.dead = c == Dead
}

// disconnected has clients know that their connections have ended with the server, as their
// pools find out sooner or later: what they send next goes over new ones. Before that, the
// next request of each would be lost.
func (srv *server) disconnected() {
	for _, c := range srv.s.clients {
		delete(c.nodes, srv)
		delete(c.links, srv)
	}
}
