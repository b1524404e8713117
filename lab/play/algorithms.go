package play

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

// An Algorithm is a step of the ladder: one of the project's, as its New makes it.
type Algorithm struct {
	ID      string `json:"id"` // in the page's address
	Title   string `json:"title"`
	Servers int    `json:"servers"`
	Fenced  bool   `json:"fenced"` // each hold has a fence
	vouched bool   // the servers of RedLock may vote from the beginning: an operator has run "locks bootstrap"
	create  func(c *client, nodes []driver.Node) (strategy.Strategy, error)
}

// Algorithms are the ladder, from the oldest up.
func Algorithms() []Algorithm {
	stamped := func(options ...setnxgetset.Option) func(*client, []driver.Node) (strategy.Strategy, error) {
		return func(c *client, nodes []driver.Node) (strategy.Strategy, error) {
			clock := setnxgetset.WithClock(func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) })
			return setnxgetset.New(nodes[0], c.options(), append(options[:len(options):len(options)], clock)...)
		}
	}
	voted := func(options ...redlock.Option) func(*client, []driver.Node) (strategy.Strategy, error) {
		return func(c *client, nodes []driver.Node) (strategy.Strategy, error) {
			return redlock.New(nodes, c.options(), options...)
		}
	}
	return []Algorithm{
		{"setnxgetset-blind", "setnxgetset, released blindly: SETNX with a stamp; DEL without a look", 1, false, false, stamped(setnxgetset.WithBlindRelease())},
		{"setnxgetset", "setnxgetset: SETNX with a stamp, GETSET to take over", 1, false, false, stamped()},
		{"setnxgetset-watch", "setnxgetset with WATCH: take-over and release in a transaction", 1, false, false, stamped(setnxgetset.WithWatchTakeOver())},
		{"setnxpx-blind", "setnxpx, released blindly: SET NX PX; DEL without a look", 1, false, false, func(c *client, n []driver.Node) (strategy.Strategy, error) {
			return setnxpx.New(n[0], c.options(), setnxpx.WithBlindRelease())
		}},
		{"setnxpx", "setnxpx: SET NX PX; look, then DEL", 1, false, false, func(c *client, n []driver.Node) (strategy.Strategy, error) {
			return setnxpx.New(n[0], c.options())
		}},
		{"luascript-unfenced", "luascript without fences: compare and delete in a script", 1, false, false, func(c *client, n []driver.Node) (strategy.Strategy, error) {
			return luascript.New(n[0], c.options(), luascript.WithoutFences())
		}},
		{"luascript", "luascript: compare and delete in a script, and fences", 1, true, false, func(c *client, n []driver.Node) (strategy.Strategy, error) {
			return luascript.New(n[0], c.options())
		}},
		{"fairqueue", "fairqueue: luascript with a queue", 1, true, false, func(c *client, n []driver.Node) (strategy.Strategy, error) {
			return fairqueue.New(n[0], c.options())
		}},
		{"reentrant", "reentrant: its owner may enter again", 1, true, false, func(c *client, n []driver.Node) (strategy.Strategy, error) {
			return reentrant.New(n[0], c.options())
		}},
		{"redlock-unguarded", "redlock without its guard: a vote of five servers", 5, false, false, voted(redlock.WithoutGuard())},
		{"redlock", "redlock: with its guard against servers that forget", 5, false, true, voted()},
		{"redlock-fences", "redlock with fences", 5, true, true, voted(redlock.WithFences())},
	}
}

// Find returns the algorithm of that ID.
func Find(id string) (Algorithm, error) {
	for _, a := range Algorithms() {
		if a.ID == id {
			return a, nil
		}
	}
	return Algorithm{}, fmt.Errorf("there is no algorithm %q here", id)
}

// prepare does what an operator does once.
func (a Algorithm) prepare(s *Stage) error {
	if !a.vouched {
		return nil
	}
	var nodes []driver.Node
	for _, srv := range s.servers {
		n := srv.node()
		if err := n.Use(); err != nil {
			return err
		}
		defer n.Close()
		nodes = append(nodes, n)
	}
	return redlock.Bootstrap(context.Background(), nodes)
}
