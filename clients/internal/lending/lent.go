package lending

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/timeup"
)

// MaxDead is how many connections in a row may turn out to be dead before the making of one
// fails: after a restart of the server the client's pool may be full of them.
const MaxDead = 64

// A lent is a connection that nobody else uses until it is given back.
type lent struct {
	Conn
	release func()
	end     sync.Once // it is given back, or closed
	id      client.Identity
	hello   string       // its id, also where CLIENT INFO is denied
	server  string       // what a cluster calls it
	replica bool         // the server has said that it is one
	resp3   bool         // it speaks RESP3
	used    time.Time    // when the last reply came
	ended   <-chan error // hears of the connection's end; nil: the client would not say

	retired bool // it leads to a replica: nobody uses it again; guarded by the pipe's lock
}

// fresh reports whether the connection can be relied on without a question.
func (n *Node) fresh(lt *lent) bool {
	select {
	case <-lt.ended:
		return false
	default:
		return time.Since(lt.used) < ProbeAfter && !n.Silent.Since(lt.used)
	}
}

// recentlySilent reports whether a request got no reply a short while ago: what has silenced its connection, has perhaps
// silenced all of its age. A cluster's connections are made when they are used, so it takes more than a moment until
// they answer.
func (n *Node) recentlySilent() bool {
	return !n.cluster && n.Silent.Recent()
}

// ask sends commands in one packet and waits for all replies, refusals among them; err is
// what broke the connection, or the end of the time. Then it must not be used any more.
func (lt *lent) ask(ctx context.Context, due time.Time, cmds ...Command) ([]Reply, error) {
	ctx, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	replies := lt.DoMulti(ctx, cmds...)
	for _, r := range replies {
		if r.Broken != nil {
			return nil, r.Broken
		}
	}
	return replies, nil
}

// answers asks for a sign of life. A refusal is one, too.
func (lt *lent) answers(due time.Time) bool {
	_, err := lt.ask(context.Background(), due, Command{Name: "PING"})
	return err == nil
}

// lend borrows a connection that lives, and asks who it is. On a cluster it leads to the
// master that has the key, or to any node if there is no key. The client has no limit for the wait
// for a connection: ctx bounds only what is sent on it.
func (n *Node) lend(ctx context.Context, key string) (*lent, error) {
	for dead := 0; ; dead++ {
		began, cautious := time.Now(), n.recentlySilent()
		dedicated, release := n.client.Dedicate() // if it is new, it has answered the client
		due := time.Now().Add(BringLimit)
		if cautious {
			due = time.Now().Add(max(client.Patience, 4*time.Since(began)))
		}
		lt := &lent{Conn: dedicated, release: release}
		err := n.greet(ctx, due, lt, key)
		last := dead == MaxDead || timeup.Over(ctx)
		if last && isTimeout(err) && ctx.Err() != context.Canceled {
			n.Silent.Note()
		}
		old := n.idle.take(cmp.Or(lt.hello, lt.id.ID)) || lt.id.Age > 0
		switch {
		case err == nil && lt.replica && old && !last: // a new one may lead to the new primary
			n.pipe.abandon()
		case err == nil:
			return lt, nil
		case cautious && !last && isTimeout(err) && !time.Now().Before(due): // silent: it is dead, too
		case !isBroken(err) || last:
			n.discard(lt)
			return nil, client.Discreet(dialError(ctx, err), "")
		}
		n.discard(lt)
	}
}

// idleConns name the connections that were given back: the client does not say whether what it lends
// is new.
type idleConns struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (r *idleConns) add(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids == nil || len(r.ids) > 1000 { // the client has closed most of them without a word
		r.ids = map[string]bool{}
	}
	if id != "" {
		r.ids[id] = true
	}
}

// take reports whether the connection was given back before, and forgets it.
func (r *idleConns) take(id string) (old bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old = r.ids[id]
	delete(r.ids, id)
	return old
}

// isBroken tells a connection that broke from one that could not be made.
func isBroken(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op != "dial" && !op.Timeout()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// dialError says why there is no connection. For a time-out it gives the reason with which ctx has ended,
// the caller's or ours; else that the time is over.
func dialError(ctx context.Context, err error) error {
	if isTimeout(err) {
		return cmp.Or(context.Cause(ctx), timeup.Err)
	}
	return err
}

// greet asks the server for its role and who the connection is, and in the same packet whether it may kill:
// the filters of that question match nobody. A server that refuses either of the last two keeps no order, for
// good; there any reply will do.
func (n *Node) greet(ctx context.Context, due time.Time, lt *lent, key string) error {
	if !n.Ordered() {
		return n.greetUnordered(ctx, due, lt, key)
	}
	replies, err := lt.ask(ctx, due, Command{Name: "HELLO"}, commandOf("CLIENT", "INFO"), commandOf(client.MayKill...))
	if err == nil {
		err = firstPassing(replies)
	}
	if err != nil {
		return err
	}
	n.readRole(lt, replies[0])
	if lt.id = n.introduced(replies[1]); !lt.id.Known() || !replies[2].isCount() {
		n.Unordered.Store(true)
	}
	return nil
}

func commandOf(words ...string) Command { return Command{Name: words[0], Words: words[1:]} }

// readRole reads the answer to HELLO. A server that refuses it is taken for a primary.
func (n *Node) readRole(lt *lent, r Reply) {
	hello, err := n.answered(r)
	if err != nil {
		return
	}
	lt.replica = rediskit.Demoted(hello)
	words, _ := hello.([]any)
	for i := 0; i+1 < len(words); i += 2 {
		switch name, _ := words[i].([]byte); string(name) {
		case "proto":
			lt.resp3 = words[i+1] == int64(3)
		case "id":
			id, _ := words[i+1].(int64)
			lt.hello = strconv.FormatInt(id, 10)
		}
	}
}

// watch has the client read the connection also at rest, so that ended hears of its end. In RESP2 the
// client makes another connection for what can come at rest, and would watch that.
func (lt *lent) watch() {
	if lt.resp3 {
		lt.ended = lt.Hear(func(_, _ string) {})
	}
}

// greetUnordered is greet where there is no order: the server shows that it lives, and in a cluster who
// it is, if it tells.
func (n *Node) greetUnordered(ctx context.Context, due time.Time, lt *lent, key string) error {
	question := Command{Name: "HELLO"}
	if n.cluster {
		question = Command{Name: "CLUSTER", Words: []string{"MYID"}, Slot: key}
	}
	replies, err := lt.ask(ctx, due, question)
	if err != nil {
		return err
	}
	if n.cluster {
		id, _ := replies[0].Value.([]byte) // a refusal has no name
		lt.server = string(id)
	} else {
		n.readRole(lt, replies[0])
	}
	return firstPassing(replies)
}

// kill ends connections, and returns nil when they are dead, or when the server has refused
// that for good. Having killed none is as good as one: it was dead.
func (n *Node) kill(lt *lent, ids []client.Identity) error {
	var cmds []Command
	for _, id := range ids {
		cmds = append(cmds, commandOf(id.Kill()...))
	}
	replies, err := lt.ask(context.Background(), time.Now().Add(BringLimit), cmds...)
	if err == nil {
		err = firstPassing(replies)
	}
	if err != nil {
		return dialError(context.Background(), err)
	}
	if !slices.ContainsFunc(replies, func(r Reply) bool { return !r.isCount() }) {
		return nil
	}
	n.Unordered.Store(true)
	return nil
}

func firstPassing(replies []Reply) error {
	for _, r := range replies {
		if r.Refusal != nil && client.Passing(r.Refusal) {
			return r.Refusal
		}
	}
	return nil
}

// introduced reads the answer to CLIENT INFO. It also learns the node's name: the server's own side of the connection.
func (n *Node) introduced(r Reply) client.Identity {
	reply, _ := n.answered(r) // a refusal has no such words
	said, _ := reply.([]byte)
	id := client.Introduced(string(said))
	if id.Server != "" {
		n.learned.Store(&id.Server)
	}
	return id
}

// giveBack returns a clean connection to the client. The client may say something on it first,
// without a time-out: nobody waits for that.
func (n *Node) giveBack(lt *lent) {
	lt.end.Do(func() {
		n.idle.add(cmp.Or(lt.hello, lt.id.ID))
		n.work.Go(lt.release)
	})
}

// discard closes a connection; nobody waits for that, as it may take a second.
func (n *Node) discard(lt *lent) {
	lt.end.Do(func() { n.work.Go(lt.Close) })
}
