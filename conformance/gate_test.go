// Tests what gates may do to the requests of a node: hold them up, lose them, repeat them, change their order.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/strategy"
)

// memoryNode is a server in memory as a node, on which every script acquires, and every command of a session.
type memoryNode struct{ *memory.Server }

var acquireScript = driver.NewScript("acquire", "SET key token NX PX ttl")

func (n memoryNode) Name() string                            { return "server" }
func (n memoryNode) Ordered() bool                           { return true }
func (n memoryNode) Use() error                              { return nil }
func (n memoryNode) Probe(context.Context, time.Time) uint64 { return 0 }
func (n memoryNode) Close() error                            { return nil }

func (n memoryNode) Eval(ctx context.Context, due time.Time, _ *driver.Script, keys []string, args ...any) (any, error) {
	token := args[0].(string)
	_, err := n.Acquire(ctx, driver.Claim{Key: keys[0], Token: token, Owner: token, TTL: time.Hour, Due: due})
	var said *strategy.ServerError
	if errors.As(err, &said) {
		said.Node = n.Name()
		return nil, said
	}
	return int64(1), nil // or it is held: that is an answer, too
}

func (n memoryNode) Subscribe(ctx context.Context, channel string, fn func([]byte, error)) (func(), error) {
	return n.Watch(ctx, driver.Claim{Key: channel}, func(x driver.Notification) { fn([]byte(x.Holder), nil) })
}

func (n memoryNode) Do(context.Context, time.Time, string, string, ...any) (any, error) {
	return nil, memory.Refused("no command is known")
}

func (n memoryNode) Session(ctx context.Context, due time.Time, key string, fn func(driver.Conn) error) error {
	return fn(memorySession{n, ctx, due, key})
}

// memorySession is one of such a node.
type memorySession struct {
	node memoryNode
	ctx  context.Context
	due  time.Time
	key  string
}

func (s memorySession) Do(_ string, args ...any) (any, error) {
	return s.node.Eval(s.ctx, s.due, acquireScript, []string{s.key}, args...)
}

// askFor asks a node for key, with a time-out of a second.
func askFor(ctx context.Context, n driver.Node, key, token string) (any, error) {
	return n.Eval(ctx, time.Now().Add(time.Second), acquireScript, []string{key}, token)
}

// askInSession is askFor, in a session.
func askInSession(ctx context.Context, n driver.Node, key, token string) (reply any, err error) {
	err = n.Session(ctx, time.Now().Add(time.Second), key, func(c driver.Conn) error {
		reply, err = c.Do("SET", token)
		return err
	})
	return reply, err
}

// TestGates: what a gate does to a request becomes of a script, and of a command of a session. Nothing of a session takes
// effect once its caller has gone.
func TestGates(t *testing.T) {
	thaw := func() { time.Sleep(3 * time.Second) } // after the request's time-out
	for name, x := range map[string]struct {
		gate  Gate
		want  error
		after time.Duration
		then  bool // the request has taken effect when its caller goes away
		late  bool // it does so when its caller has gone
	}{
		"that do nothing":               {open, nil, 0, true, false},
		"that lose the request":         {closed, strategy.ErrUnsent, 0, false, false},
		"that send twice":               {func(_ string, send func()) { send(); send() }, nil, 0, true, false},
		"that send elsewhere, too late": {func(_ string, send func()) { time.AfterFunc(time.Second, send) }, strategy.ErrUnsent, 0, false, false},
		"that are a little slow":        {func(_ string, send func()) { time.Sleep(time.Second / 2); send() }, nil, time.Second / 2, true, false},
		"that hold the request up":      {func(_ string, send func()) { thaw(); send() }, strategy.ErrUnknown, time.Second, false, true},
		"that hold the reply up":        {func(_ string, send func()) { send(); thaw() }, strategy.ErrUnknown, time.Second, true, false},
		"that lose it after a while":    {func(string, func()) { thaw() }, strategy.ErrUnknown, time.Second, false, false},
	} {
		for _, session := range []bool{false, true} {
			ask, late := askFor, x.late
			if session {
				ask, late = askInSession, false
			}
			t.Run(fmt.Sprintf("%s, in a session: %v", name, session), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var m memory.Server
					n := GateNode(memoryNode{&m}, x.gate)
					began := time.Now()
					reply, err := ask(t.Context(), n, "key", "token")
					var server *strategy.ServerError
					if !matches(err, x.want) || err != nil && (!errors.As(err, &server) || server.Node != "server") || err == nil && reply == nil {
						t.Errorf("it hears %v, %v, want %v of the server", reply, err, x.want)
					}
					if took := time.Since(began); took != x.after {
						t.Errorf("it took %v, want %v", took, x.after)
					}
					if got := m.At("key") != ""; got != x.then {
						t.Errorf("when its caller goes away the request has taken effect: %v, want %v", got, x.then)
					}
					time.Sleep(time.Minute)
					if got := m.At("key") != ""; got != (x.then || late) {
						t.Errorf("in the end the request has taken effect: %v, want %v", got, x.then || late)
					}
					if got := n.Ordered(); got == late {
						t.Errorf("Ordered() = %v, want %v", got, !late)
					}
				})
			})
		}
	}
}

func TestGatesLetTheCallerGoWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory.Server
		thaw := make(chan struct{})
		n := GateNode(memoryNode{&m}, func(_ string, send func()) { <-thaw; send() })
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("called off")
		time.AfterFunc(time.Second/4, func() { cancel(why) })
		if _, err := askFor(ctx, n, "key", "token"); !errors.Is(err, strategy.ErrUnknown) || !errors.Is(err, why) {
			t.Errorf("Eval = %v, want ErrUnknown, and why", err)
		}
		if _, err := askFor(ctx, n, "key", "another"); !errors.Is(err, strategy.ErrUnsent) {
			t.Errorf("Eval with a context that is done = %v, want ErrUnsent", err)
		}
		close(thaw)
		synctest.Wait()
		if got := m.At("key"); got != "token" {
			t.Errorf("the key holds %q, want the late request's token", got)
		}
	})
}

// What overtakes is noticed where it matters: on the same key, and before the reply of
// what overtook.
func TestGatesThatChangeTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory.Server
		thaw := make(chan struct{})
		var held atomic.Bool // one is
		n := GateNode(memoryNode{&m}, func(_ string, send func()) {
			if held.CompareAndSwap(false, true) {
				<-thaw
			}
			send()
		})
		go askFor(t.Context(), n, "key", "slow")
		synctest.Wait()
		askFor(t.Context(), n, "other key", "token")
		if !n.Ordered() {
			t.Error("Ordered() = false, want true: the request that overtook was for another key")
		}
		askFor(t.Context(), n, "key", "fast")
		if n.Ordered() {
			t.Error("Ordered() = true, want false: a request on the same key was overtaken")
		}
		close(thaw)
		synctest.Wait()
		if got := m.At("key"); got != "fast" {
			t.Errorf("the key holds %q, want the token of what overtook", got)
		}
	})
}

func TestGatesLeaveNoSubscription(t *testing.T) {
	for name, gate := range map[string]Gate{
		"held up before": func(_ string, send func()) { time.Sleep(time.Minute); send() },
		"held up after":  func(_ string, send func()) { send(); time.Sleep(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var m memory.Server
				n := GateNode(memoryNode{&m}, gate)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := n.Subscribe(ctx, "key", func([]byte, error) {}); !errors.Is(err, strategy.ErrUnknown) {
					t.Errorf("Subscribe = %v, want ErrUnknown", err)
				}
				time.Sleep(2 * time.Minute)
				if left, _ := m.Leftovers(t.Context(), "key"); len(left) != 0 {
					t.Errorf("the server keeps %q, want nothing", left)
				}
			})
		})
	}
}
