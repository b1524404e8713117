// Tests what a server may answer, and what the strategies make of it.
package subjects

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/strategy"
)

// replies makes of bytes what a Redis may answer: each reply is a letter, and what follows it.
type replies struct{ rest []byte }

func (r *replies) take(n int) []byte {
	n = min(n, len(r.rest))
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// next is one reply: n nothing, i a number of one byte, I of eight, s a text, t a text that
// means something, a an array, e an error, and so on round.
func (r *replies) next(depth int) (any, error) {
	kind := r.take(1)
	if len(kind) == 0 {
		return nil, nil
	}
	switch kind[0] % 7 {
	case 0:
		return nil, nil
	case 1:
		b := append(r.take(1), 0)
		return int64(int8(b[0])), nil
	case 2:
		b := append([]byte(nil), r.take(8)...)
		return int64(binary.BigEndian.Uint64(append(b, make([]byte, 8-len(b))...))), nil
	case 3:
		n := append(r.take(1), 0)
		return append([]byte{}, r.take(int(n[0]))...), nil
	case 4:
		words := []string{"OK", "QUEUED", "mine", "other", "guard", "empty", "1795341427012:mine", "1", "0", "lock", "9007199254740993"}
		n := append(r.take(1), 0)
		return []byte(words[int(n[0])%len(words)]), nil
	case 5:
		n := append(r.take(1), 0)
		all := []any{}
		for range int(n[0]) % 9 {
			if depth >= 3 {
				break
			}
			one, _ := r.next(depth + 1)
			all = append(all, one)
		}
		return all, nil
	}
	kinds := []error{strategy.ErrRefused, strategy.ErrUnsent, strategy.ErrUnknown}
	n := append(r.take(1), 0)
	words := []string{"NOSCRIPT none", "CROSSSLOT keys", "MOVED 1 a:1", "OOM", "NOPERM no", "WRONGTYPE other"}
	return nil, &strategy.ServerError{Node: "fake", Kind: kinds[int(n[0])%3], Err: errors.New(words[int(n[0]/3)%len(words)])}
}

// A liar is a node whose replies are anything.
type liar struct {
	t    *testing.T
	name string

	mu    sync.Mutex
	from  replies
	asked int
	said  []any // what it has replied to scripts and commands
}

func (n *liar) answer() (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked++; n.asked > 500 {
		n.t.Errorf("%d requests: it asks for ever", n.asked)
		return nil, &strategy.ServerError{Node: n.name, Kind: strategy.ErrUnknown}
	}
	if len(n.from.rest) == 0 {
		return nil, &strategy.ServerError{Node: n.name, Kind: strategy.ErrUnsent, Err: errors.New("nothing is left to say")}
	}
	reply, err := n.from.next(0)
	if err == nil {
		n.said = append(n.said, reply)
	}
	return reply, err
}

func (n *liar) Name() string  { return n.name }
func (n *liar) Ordered() bool { return true }
func (n *liar) Use() error    { return nil }
func (n *liar) Close() error  { return nil }

func (n *liar) Probe(context.Context, time.Time) uint64 { return 0 }

func (n *liar) Do(context.Context, time.Time, string, string, ...any) (any, error) {
	return n.answer()
}

func (n *liar) Eval(context.Context, time.Time, *driver.Script, []string, ...any) (any, error) {
	return n.answer()
}

func (n *liar) Session(_ context.Context, _ time.Time, _ string, fn func(driver.Conn) error) error {
	return fn(liarConn{n})
}

func (n *liar) Subscribe(context.Context, string, func([]byte, error)) (func(), error) {
	return nil, &strategy.ServerError{Node: n.name, Kind: strategy.ErrRefused, Err: errors.New("nothing to hear")}
}

type liarConn struct{ n *liar }

func (c liarConn) Do(string, ...any) (any, error) { return c.n.answer() }

// grants reports whether a reply is one by which a server may grant a lock of v.
func grants(v Variant, reply any) bool {
	n, isInt := reply.(int64)
	text, _ := reply.([]byte)
	r, _ := reply.([]any)
	switch v.Package {
	case "setnxgetset": // SETNX; GETSET of a stamp that has passed, or of nothing; EXEC
		return n == 1 || string(text) == "1795341427012:mine" || reply == nil || len(r) == 1
	case "setnxpx":
		return string(text) == "OK"
	case "luascript":
		return n > 0
	case "fairqueue":
		return n > 0 || len(r) == 2 && isPositive(r[0]) && isInt64(r[1])
	case "reentrant":
		return n > 0
	case "redlock":
		return isInt && n > 0 || v.Fenced && len(r) == 5
	}
	panic("no package " + v.Package)
}

func isInt64(v any) bool    { _, ok := v.(int64); return ok }
func isPositive(v any) bool { n, ok := v.(int64); return ok && n > 0 }

// lied are the variants that liars serve, with a time-out for each node that no answer needs.
func lied() []Variant {
	var vs []Variant
	for _, name := range []string{"setnxgetset", "setnxgetset-watch", "setnxgetset-blind", "setnxpx", "setnxpx-blind", "luascript", "fairqueue", "reentrant", "redlock-3"} {
		vs = append(vs, plainly(name))
	}
	fenced := plainly("redlock-fenced")
	fenced.Servers = 3
	return append(vs, fenced, variantOf("redlock-unguarded"))
}

// FuzzReplies has servers reply anything to what protocols ask. None panics or asks for ever;
// none takes for granted what a majority of them has not granted; and what they make of it is
// plausible: a time, a fence.
func FuzzReplies(f *testing.F) {
	for i := range lied() {
		for _, s := range []string{"", "\x01\x01", "\x01\x01\x01\x01", "\x02\x00\x20\x00\x00\x00\x00\x00\x01", "\x04\x00\x04\x01", "\x05\x02\x04\x03\x01\x7f", "\x06\x00", "\x05\x04\x04\x04\x04\x05\x01\x10\x01\x10"} {
			f.Add(uint8(i), []byte(s), []byte(s), []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, a, b, c []byte) {
		vs := lied()
		v := vs[int(which)%len(vs)]
		said := [][]byte{a, b, c}
		for _, call := range []string{"Acquire", "Queue", "Extend", "Release", "Undo", "ForceRelease", "Adopt", "Pass", "ExtendAll", "Inspect", "Check"} {
			believe(t, v, call, said)
		}
	})
}

// believe makes one call of v's on nodes that say what they are given.
func believe(t *testing.T, v Variant, call string, said [][]byte) {
	nodes := make([]driver.Node, v.Servers)
	liars := make([]*liar, v.Servers)
	for i := range nodes {
		liars[i] = &liar{t: t, name: fmt.Sprint("fake", i), from: replies{said[i]}}
		nodes[i] = liars[i]
	}
	p := v.On(nodes)
	if closer, ok := p.(interface{ Close() error }); ok {
		defer closer.Close() //nolint:errcheck // nothing is to be closed
	}
	ctx := t.Context()
	c := driver.Claim{Name: "a", Key: "lock:{a}", Token: "mine", Owner: "mine", TTL: time.Minute, Due: time.Now().Add(time.Second)}
	held := c
	held.Grant = driver.Grant{Start: time.Now(), TTL: time.Minute, Fence: 1, Owner: "mine"}
	granted := func(g driver.Grant, err error) {
		t.Helper()
		classified(t, v, call, err)
		if err != nil {
			return
		}
		votes := 0
		for _, n := range liars {
			n.mu.Lock()
			for _, r := range n.said {
				if grants(v, r) {
					votes++
					break
				}
			}
			n.mu.Unlock()
		}
		if votes < v.Servers/2+1 {
			t.Errorf("%s: %s is granted, but %d of %d servers have not said so", v.Name, call, v.Servers-votes, v.Servers)
		}
		if v.Fenced != (g.Fence > 0) || g.Fence > 1<<63-1 || g.Fences < 0 || g.Fences > driver.MaxFences || g.TTL < 0 {
			t.Errorf("%s: %s grants %+v", v.Name, call, g)
		}
	}
	switch call {
	case "Acquire":
		granted(p.Acquire(ctx, c))
	case "Queue":
		if _, ok := p.(driver.Queuer); ok {
			c.Line = "line"
			granted(p.Acquire(ctx, c))
		}
	case "Pass":
		if q, ok := p.(driver.Queuer); ok {
			next := c
			next.Token, next.Line = "next", "line"
			granted(q.Pass(ctx, held, next))
		}
	case "Adopt":
		g, err := p.Adopt(ctx, c, "theirs")
		classified(t, v, call, err)
		if err == nil && v.Fenced != (g.Fence > 0) {
			t.Errorf("%s: Adopt grants %+v", v.Name, g)
		}
	case "Extend":
		_, err := p.Extend(ctx, held)
		classified(t, v, call, err)
	case "ExtendAll":
		if bulk, ok := p.(driver.BulkExtender); ok {
			told := make([]int, 3)
			bulk.ExtendAll(ctx, []driver.Claim{held, held, held}, func(i int, _ driver.Grant, err error) {
				told[i]++
				classified(t, v, call, err)
			})
			for i, n := range told {
				if n != 1 {
					t.Errorf("%s: ExtendAll has told of claim %d %d times", v.Name, i, n)
				}
			}
		}
	case "Release":
		classified(t, v, call, locktest.Err(p.Release(ctx, held)))
	case "Undo":
		classified(t, v, call, p.Undo(ctx, held))
	case "ForceRelease":
		classified(t, v, call, locktest.Err(p.ForceRelease(ctx, held)))
	case "Inspect":
		info, err := p.Inspect(ctx, driver.Claim{Name: "a", Key: "lock:{a}", Due: c.Due})
		classified(t, v, call, err)
		if err == nil && info.Held && info.TTL == 0 || info.Holds < 0 {
			t.Errorf("%s: Inspect = %+v", v.Name, info)
		}
	case "Check":
		err := p.Check(ctx, strategy.Options{TTL: time.Minute, OpTimeout: time.Second, Key: strategy.DefaultKey})
		if err != nil && len(err.Error()) > 1<<16 {
			t.Errorf("%s: Check says %d bytes", v.Name, len(err.Error()))
		}
	}
}

// classified reports whether an error is one of the contract's kinds, and says what can be.
func classified(t *testing.T, v Variant, call string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var held *strategy.HeldError
	if errors.As(err, &held) && held.TTL < -1 {
		t.Errorf("%s: %s = %v: the TTL is %v", v.Name, call, err, held.TTL)
	}
	for _, kind := range []error{
		strategy.ErrHeld, strategy.ErrLost, strategy.ErrRefused, strategy.ErrUnsent, strategy.ErrUnknown, strategy.ErrNoQuorum, strategy.ErrUnsupported,
	} {
		if errors.Is(err, kind) {
			return
		}
	}
	t.Errorf("%s: %s = %v (%T), want an error of the contract", v.Name, call, err, err)
}
