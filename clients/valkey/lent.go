// Code generated from clients/rueidis by generated_test.go. DO NOT EDIT.

package valkeynode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/lockstrategies/locks/internal/timeup"
)

// maxDead is how many connections in a row may turn out to be dead before the making of one
// fails: after a restart of the server the client's pool may be full of them.
const maxDead = 64

// A lent is a connection that nobody else uses until it is given back.
type lent struct {
	valkey.DedicatedClient
	release func()
	end     sync.Once // it is given back, or closed
	id      identity
	server  string // what a cluster calls it
	born    time.Time
	used    time.Time // when the last reply came
}

func (lt *lent) fresh() bool { return time.Since(lt.used) < probeAfter }

// ask sends commands in one packet and waits for all replies, refusals among them; err is
// what broke the connection, or the end of the time. Then it must not be used any more.
func (lt *lent) ask(ctx context.Context, due time.Time, cmds ...valkey.Completed) ([]valkey.ValkeyResult, error) {
	ctx, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	results := lt.DoMulti(ctx, cmds...)
	for _, r := range results {
		if err := r.NonValkeyError(); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// answers asks for a sign of life. A refusal is one, too.
func (lt *lent) answers(due time.Time) bool {
	_, err := lt.ask(context.Background(), due, lt.B().Ping().Build())
	return err == nil
}

// lend borrows a connection that lives, and asks who it is. On a cluster it leads to the
// master that has the key, or to any node if there is no key. valkey-go has no limit for the wait
// for a connection: ctx bounds only what is sent on it.
func (n *Node) lend(ctx context.Context, key string) (*lent, error) {
	for dead := 0; ; dead++ {
		client, release := n.client.Dedicate()
		lt := &lent{DedicatedClient: client, release: release, born: time.Now()}
		err := n.greet(ctx, lt, key)
		if err == nil {
			return lt, nil
		}
		n.discard(lt)
		if !died(err) || dead == maxDead || ctx.Err() != nil {
			return nil, discreet(unmade(ctx, err))
		}
	}
}

// died tells a connection that broke from one that could not be made.
func died(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op != "dial" && !op.Timeout()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// unmade says why there is no connection. For a time-out it gives the reason with which ctx has ended,
// the caller's or ours; else that the time is over.
func unmade(ctx context.Context, err error) error {
	if isTimeout(err) {
		return cmp.Or(context.Cause(ctx), timeup.Err)
	}
	return err
}

// An identity names a connection on its server: the id is never used twice in the life of a
// server, and the address tells a restarted server's ids from it.
type identity struct{ id, addr string }

func (i identity) known() bool { return i.id != "" }

// greet asks the server who the connection is, and in the same packet whether it may kill:
// the filters of that question match nobody. A server that refuses either keeps no order, for
// good; there any reply will do.
func (n *Node) greet(ctx context.Context, lt *lent, key string) error {
	due := time.Now().Add(bringLimit)
	if !n.Ordered() {
		return n.hail(ctx, due, lt, key)
	}
	results, err := lt.ask(ctx, due,
		lt.B().Arbitrary("CLIENT", "INFO").Build(),
		lt.B().Arbitrary("CLIENT", "KILL", "ID", "1", "ADDR", "0.0.0.0:0").Build())
	if err == nil {
		err = firstPassing(results)
	}
	if err != nil {
		return err
	}
	if lt.id = n.introduced(results[0]); !lt.id.known() || !isCount(results[1]) {
		n.unordered.Store(true)
	}
	return nil
}

// hail is greet where there is no order: the server shows that it lives, and in a cluster who
// it is, if it tells.
func (n *Node) hail(ctx context.Context, due time.Time, lt *lent, key string) error {
	word := lt.B().Ping().Build()
	if n.cluster {
		word = lt.B().Arbitrary("CLUSTER", "MYID").Build()
		if key != "" {
			word = word.SetSlot(key)
		}
	}
	results, err := lt.ask(ctx, due, word)
	if err != nil {
		return err
	}
	if id, refusal := results[0].ToString(); refusal == nil { // the text of a refusal is no name
		lt.server = id
	}
	return firstPassing(results)
}

// kill ends connections, and returns nil when they are dead, or when the server has refused
// that for good. Having killed none is as good as one: it was dead.
func (n *Node) kill(lt *lent, ids []identity) error {
	var cmds []valkey.Completed
	for _, id := range ids {
		cmds = append(cmds, lt.B().Arbitrary("CLIENT", "KILL", "ID", id.id, "ADDR", id.addr).Build())
	}
	results, err := lt.ask(context.Background(), time.Now().Add(bringLimit), cmds...)
	if err == nil {
		err = firstPassing(results)
	}
	if err != nil {
		return unmade(context.Background(), err)
	}
	if !slices.ContainsFunc(results, func(r valkey.ValkeyResult) bool { return !isCount(r) }) {
		return nil
	}
	n.unordered.Store(true)
	return nil
}

func firstPassing(results []valkey.ValkeyResult) error {
	for _, r := range results {
		if err := r.Error(); err != nil && passing(err) {
			return err
		}
	}
	return nil
}

func isCount(r valkey.ValkeyResult) bool {
	_, err := r.ToInt64()
	return err == nil
}

// introduced reads CLIENT INFO: words of the form key=value. It also learns the node's name:
// the server's own side of the connection.
func (n *Node) introduced(r valkey.ValkeyResult) (id identity) {
	reply, _ := n.answered(r) // a refusal has no such words
	for _, word := range strings.Fields(fmt.Sprintf("%s", reply)) {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "id":
			id.id = value
		case "addr":
			id.addr = value
		case "laddr":
			if value != "" {
				n.learned.Store(&value)
			}
		}
	}
	if id.addr == "" { // by its id alone it is not safe to kill
		return identity{}
	}
	return id
}

// giveBack returns a clean connection to the client. valkey-go may say something on it first,
// without a time-out: nobody waits for that.
func (n *Node) giveBack(lt *lent) {
	lt.end.Do(func() { n.work.Go(lt.release) })
}

// discard closes a connection; nobody waits for that, as it may take a second.
func (n *Node) discard(lt *lent) {
	lt.end.Do(func() { n.work.Go(lt.Close) })
}
