package rediscnode

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/mna/redisc"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

var errMoved = errors.New("the slot has moved to another server")

// atOnce is how many redirections are followed without a pause: two servers may send us to and
// fro while they settle whose a slot is.
const atOnce = 3

// mostPause is the longest pause before a request that was refused for a while is sent again. So much time is then
// left for its answer: without one, a refusal that has changed nothing would become an unknown outcome, and the
// connection that all callers share would be given up.
const mostPause = 50 * time.Millisecond

// A request is sent to the server of a slot; or, where that sends us on for this once (ASK), on
// a connection to another that has heard so.
type request struct {
	plain func(*server) (any, error)
	asked func(driver.Conn) (any, error)
}

// route sends a request to the server of its slot. It sends again only what has changed nothing:
// a request that was refused, or not sent.
func (n *node) route(ctx context.Context, due time.Time, slot int, r request) (any, error) {
	for tries := 1; ; tries++ {
		if err := timeup.Why(ctx, due); err != nil {
			return nil, n.failed(strategy.ErrUnsent, err)
		}
		s, err := n.owner(ctx, due, slot)
		if err != nil {
			return nil, err
		}
		reply, err := r.plain(s)
		s.users.Done()
		if err == nil {
			return reply, nil
		}
		said := redirection(err, s.addr)
		if said.kind == ask {
			if reply, err = n.sendAsked(ctx, due, said.addr, r); err == nil {
				return reply, nil
			}
			said = redirection(err, said.addr)
		}
		if again, err := n.again(ctx, due, slot, tries, s, said, s.named(err)); !again {
			return nil, err
		}
	}
}

// again reports whether a request that failed with err may do better, after the pause that it
// takes. If not, it returns the caller's error.
func (n *node) again(ctx context.Context, due time.Time, slot, tries int, s *server, said redirect, err error) (bool, error) {
	switch said.kind {
	case moved:
		n.moved(said.slot, said.addr)
		if tries < atOnce {
			return true, nil
		}
	case ask, tryAgain:
	default:
		if !errors.Is(err, strategy.ErrUnsent) || timeup.Why(ctx, due) != nil || errors.Is(err, strategy.ErrClosed) {
			return false, err
		}
		// It is not reached: has another taken over?
		if n.inquire(ctx, due) != nil || n.ownerAddr(slot) == s.addr {
			return false, err
		}
		if tries < atOnce {
			return true, nil
		}
	}
	if why := pause(ctx, due, tries); why != nil {
		return false, because(why, err)
	}
	return true, nil
}

// sendAsked sends a request to a server that is just being given the slot. It must hear so
// on the same connection, just before.
func (n *node) sendAsked(ctx context.Context, due time.Time, addr string, r request) (reply any, err error) {
	s, err := n.at(addr)
	if err != nil {
		return nil, n.failed(strategy.ErrUnsent, err)
	}
	defer s.users.Done()
	err = s.Session(ctx, due, "", func(c driver.Conn) (err error) {
		reply, err = (&asking{Conn: c}).then(func() (any, error) { return r.asked(c) })
		return err
	})
	return reply, s.named(err)
}

// Session runs fn on a connection to the master of key's slot. To make sure of that, key is
// looked at there first (EXISTS): one more round trip. If the key moves just then, fn's
// commands are refused with ASK or MOVED, and the next session goes to the right server.
func (n *node) Session(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error {
	slot := redisc.Slot(key)
	for tries := 1; ; tries++ {
		if err := timeup.Why(ctx, due); err != nil {
			return n.failed(strategy.ErrUnsent, err)
		}
		s, err := n.owner(ctx, due, slot)
		if err != nil {
			return err
		}
		began, err := n.lend(ctx, due, s, key, false, fn)
		s.users.Done()
		if began {
			return err
		}
		said := redirection(err, s.addr)
		if said.kind == ask {
			other, e := n.at(said.addr)
			if e != nil {
				return n.failed(strategy.ErrUnsent, e)
			}
			began, err = n.lend(ctx, due, other, key, true, fn)
			other.users.Done()
			if began {
				return err
			}
			said = redirection(err, said.addr)
		}
		if again, err := n.again(ctx, due, slot, tries, s, said, s.named(err)); !again {
			return err
		}
	}
}

// lend runs fn on a connection to s, if key is served there. It returns whether fn was called.
func (n *node) lend(ctx context.Context, due time.Time, s *server, key string, guest bool, fn func(driver.Conn) error) (began bool, err error) {
	err = s.Session(ctx, due, key, func(c driver.Conn) error {
		lent := &conn{Conn: c, n: n, ctx: ctx, due: due, addr: s.addr}
		if guest {
			lent.Conn = &asking{Conn: c}
		}
		if _, err := lent.Conn.Do("EXISTS", key); redirection(err, s.addr).kind != none {
			return err
		} else if err != nil && !errors.Is(err, strategy.ErrRefused) {
			return nothingSent(err)
		}
		began = true
		return fn(lent)
	})
	return began, s.named(err)
}

// nothingSent is what a lost answer to a mere question is: nothing of the caller's was sent.
func nothingSent(err error) error {
	var failed *strategy.ServerError
	if errors.As(err, &failed) {
		return &strategy.ServerError{Node: failed.Node, Kind: strategy.ErrUnsent, Err: failed.Err}
	}
	return err
}

// A conn is a session's.
type conn struct {
	driver.Conn
	n    *node
	ctx  context.Context
	due  time.Time
	addr string
	left client.State
}

// Do learns from a MOVED for the next session, and waits while the keys are being moved.
func (c *conn) Do(cmd string, args ...any) (any, error) {
	for tries := 1; ; tries++ {
		c.left.Note(cmd)
		reply, err := c.Conn.Do(cmd, args...)
		switch said := redirection(err, c.addr); {
		case said.kind == moved:
			c.n.moved(said.slot, said.addr)
			return reply, err
		case said.kind != tryAgain || c.left.Queueing():
			return reply, err
		}
		if why := pause(c.ctx, c.due, tries); why != nil {
			return nil, because(why, err)
		}
	}
}

// asking is a connection to a server that is just being given a slot: each command has to say
// that it knows. Within a transaction that is said once.
type asking struct {
	driver.Conn
	left client.State
}

func (a *asking) Do(cmd string, args ...any) (any, error) {
	send := func() (any, error) {
		a.left.Note(cmd)
		return a.Conn.Do(cmd, args...)
	}
	if a.left.Queueing() {
		return send()
	}
	return a.then(send)
}

func (a *asking) then(send func() (any, error)) (any, error) {
	if _, err := a.Conn.Do("ASKING"); err != nil {
		return nil, nothingSent(err)
	}
	return send()
}

// A kind is what a server says of a request that another server must answer, or itself a little later.
type kind int

const (
	none     kind = iota
	moved         // the slot is another's
	ask           // this once, ask another
	tryAgain      // the keys are being moved
)

type redirect struct {
	kind kind
	slot int
	addr string
}

// redirection reads the error of the server at asked. "MOVED 3999 127.0.0.1:6381".
func redirection(err error, asked string) redirect {
	var failed *strategy.ServerError
	if err == nil || !errors.As(err, &failed) || failed.Kind != strategy.ErrRefused || failed.Err == nil {
		return redirect{}
	}
	words := strings.Fields(failed.Err.Error())
	if len(words) == 0 {
		return redirect{}
	}
	r := redirect{}
	switch words[0] {
	case "TRYAGAIN":
		return redirect{kind: tryAgain}
	case "MOVED":
		r.kind = moved
	case "ASK":
		r.kind = ask
	default:
		return redirect{}
	}
	if len(words) != 3 {
		return redirect{}
	}
	slot, e := strconv.Atoi(words[1])
	host, port, e2 := splitAddr(words[2])
	if e != nil || e2 != nil || slot < 0 || slot >= redisc.HashSlots {
		return redirect{}
	}
	r.slot, r.addr = slot, address(host, port, asked)
	return r
}

// pause waits a random time before the next try, or until due, and returns why there is none.
func pause(ctx context.Context, due time.Time, tries int) error {
	most := min(time.Millisecond<<min(tries, 10), mostPause)
	wait, left := rand.N(most)+1, time.Until(due)
	if left-wait < mostPause {
		wait = left
	}
	select {
	case <-time.After(wait):
		return timeup.Why(ctx, due)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// because adds why a refusal was the last word.
func because(why, err error) error {
	var failed *strategy.ServerError
	if errors.As(err, &failed) {
		return &strategy.ServerError{Node: failed.Node, Kind: failed.Kind, Err: fmt.Errorf("%w (%w)", failed.Err, why)}
	}
	return err
}

// unsent is the error of a call that could not be sent, because the server of its slot is not known.
func (n *node) unsent(err error) error {
	return n.failed(strategy.ErrUnsent, fmt.Errorf("the server of the slot is not known: %w", err))
}
