package locktest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// A OneReply is a node that answers everything in the same way.
type OneReply struct {
	driver.Node
	Reply any
}

func (OneReply) Name() string  { return "fake" }
func (OneReply) Ordered() bool { return true }
func (OneReply) Use() error    { return nil }

func (n OneReply) Eval(context.Context, time.Time, *driver.Script, []string, ...any) (any, error) {
	return n.Reply, nil
}

func (n OneReply) Do(context.Context, time.Time, string, string, ...any) (any, error) {
	return n.Reply, nil
}

func (n OneReply) Session(_ context.Context, _ time.Time, _ string, fn func(driver.Conn) error) error {
	return fn(oneConn(n))
}

type oneConn OneReply

func (c oneConn) Do(string, ...any) (any, error) { return c.Reply, nil }

// A Dialog is a node, and the only connection to it, that gives its replies in turn: an error fails the
// request. It notes each request: a command, or the name of a script, with its keys and arguments.
type Dialog struct {
	driver.Node
	Replies []any
	Asked   []string
}

func (*Dialog) Name() string  { return "fake" }
func (*Dialog) Ordered() bool { return true }
func (*Dialog) Use() error    { return nil }

func (d *Dialog) reply(asked string) (any, error) {
	d.Asked = append(d.Asked, asked)
	if len(d.Replies) == 0 {
		return nil, errors.New("this request was not to be sent: " + asked)
	}
	reply := d.Replies[0]
	d.Replies = d.Replies[1:]
	if err, ok := reply.(error); ok {
		return nil, err
	}
	return reply, nil
}

func (d *Dialog) Eval(_ context.Context, _ time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	return dialogConn{d}.Do(s.Name()+" "+strings.Join(keys, " "), args...)
}

func (d *Dialog) Do(_ context.Context, _ time.Time, cmd, key string, args ...any) (any, error) {
	return dialogConn{d}.Do(cmd, append([]any{key}, args...)...)
}

func (d *Dialog) Subscribe(_ context.Context, channel string, _ func([]byte, error)) (func(), error) {
	_, err := d.reply("SUBSCRIBE " + channel)
	return func() {}, err
}

func (d *Dialog) Session(_ context.Context, _ time.Time, _ string, fn func(driver.Conn) error) error {
	return fn(dialogConn{d})
}

type dialogConn struct{ d *Dialog }

func (c dialogConn) Do(cmd string, args ...any) (any, error) {
	return c.d.reply(strings.TrimSpace(fmt.Sprintln(append([]any{cmd}, args...)...)))
}

// A Talk is an operation of a protocol, the replies to its requests, and what it has to make of them.
type Talk struct {
	Name    string
	Do      Doing
	Replies []any
	Asked   []string
	Got     any
	Err     error // this one, or what it is
}

// One is a Talk of one request.
func One(name string, do Doing, asked string, reply, got any, err error) Talk {
	return Talk{Name: name, Do: do, Asked: []string{asked}, Replies: []any{reply}, Got: got, Err: err}
}

// Talks plays a table. If an operation succeeds, it also fails when any of its requests fails, and says
// ErrUnknown where any reply cannot be read, each time without another request.
func Talks(t *testing.T, talks ...Talk) {
	t.Helper()
	for _, talk := range talks {
		Play(t, talk)
		for i := range talk.Replies {
			if talk.Err == nil {
				before := talk.Replies[:i:i]
				talk.play(t, fmt.Sprintf(" with an error for request %d", i+1), append(before, errBroken), talk.Asked[:i+1], errBroken)
				talk.play(t, fmt.Sprintf(" with garbage for request %d", i+1), append(before, []any{}), talk.Asked[:i+1], strategy.ErrUnknown)
			}
		}
	}
}

// Play plays one as it stands.
func Play(t *testing.T, talk Talk) {
	t.Helper()
	got := talk.play(t, "", talk.Replies, talk.Asked, talk.Err)
	if !reflect.DeepEqual(got, talk.Got) {
		t.Errorf("%s = %+v, want %+v", talk.Name, got, talk.Got)
	}
}

func (talk Talk) play(t *testing.T, what string, replies []any, asked []string, wanted error) any {
	t.Helper()
	d := &Dialog{Replies: replies}
	got, err := talk.Do(d)
	if !errors.Is(err, wanted) && !reflect.DeepEqual(err, wanted) {
		t.Errorf("%s%s = %v, want %v", talk.Name, what, err, wanted)
	}
	if !reflect.DeepEqual(d.Asked, asked) {
		t.Errorf("%s%s asks %q, want %q", talk.Name, what, d.Asked, asked)
	}
	return got
}

// AClaim is a claim for the lock "a" by the token "t", with some changes, which fake nodes are asked with.
func AClaim(changes ...func(*driver.Claim)) driver.Claim {
	c := driver.Claim{Name: "a", Key: "a", Owner: "me", Token: "t", TTL: time.Minute, FenceTTL: 24 * time.Hour, Due: time.Now().Add(time.Minute)}
	for _, change := range changes {
		change(&c)
	}
	return c
}

// Err is the error of a call that also returns something else.
func Err[T any](_ T, err error) error { return err }

// ErrorsAreTold fails the test unless each operation of a protocol returns the error of its first request.
func ErrorsAreTold(t *testing.T, on On) {
	t.Helper()
	c := AClaim()
	o := strategy.Options{Key: strategy.DefaultKey, TTL: time.Minute, OpTimeout: time.Minute}
	all := on.operations(t.Context(), c)
	all["Check"] = func(n driver.Node) (any, error) { return nil, on(n).Check(t.Context(), o) }
	if _, ok := on(&Dialog{}).(driver.Notifier); ok {
		all["Watch"] = func(n driver.Node) (any, error) {
			_, err := on(n).(driver.Notifier).Watch(t.Context(), c, func(driver.Notification) {})
			return nil, err
		}
	}
	for what, do := range all {
		n := &Dialog{Replies: []any{errBroken}}
		if _, err := do(n); !errors.Is(err, errBroken) || len(n.Asked) > 1 {
			t.Errorf("%s() = %v after %v, want the error of its first request, and no other", what, err, n.Asked)
		}
	}
	replica := &Dialog{Replies: []any{[]byte("role:slave")}}
	if err := on(replica).Check(t.Context(), o); err == nil || len(replica.Asked) != 1 || !strings.HasPrefix(replica.Asked[0], "INFO ") {
		t.Errorf("Check() of a replica = %v after %v, want an error after INFO alone", err, replica.Asked)
	}
}

var errBroken = errors.New("broken")

// GrantsOnceConfirmed fails the test unless an acknowledged protocol grants once
// a replica has confirmed, and asks that on the connection that has written: WAIT waits for no other's writes.
// set is the command of an acquire that grants, and replies are those to all commands of one.
func GrantsOnceConfirmed(t *testing.T, on On, set string, replies ...any) {
	t.Helper()
	for confirmed, want := range []error{strategy.ErrUnknown, nil} {
		n := &Dialog{Replies: append(slices.Clone(replies), int64(confirmed))}
		acknowledged := on(onlyLent{n}).(driver.Acknowledger).Acknowledged(strategy.Acks{Replicas: 1})
		_, err := acknowledged.Acquire(t.Context(), AClaim())
		if last := len(replies); !errors.Is(err, want) || len(n.Asked) != last+1 || !strings.HasPrefix(n.Asked[last-1], set+" ") || !strings.HasPrefix(n.Asked[last], "WAIT 1 ") {
			t.Errorf("Acquire() with %d replicas that confirm = %v after %v, want %v after %s and WAIT on one connection", confirmed, err, n.Asked, want, set)
		}
	}
}

// onlyLent is a Dialog whose requests must go over the connection that it lends.
type onlyLent struct{ *Dialog }

func (onlyLent) Eval(context.Context, time.Time, *driver.Script, []string, ...any) (any, error) {
	return nil, errors.New("the script did not go over the connection that confirms")
}

func (onlyLent) Do(context.Context, time.Time, string, string, ...any) (any, error) {
	return nil, errors.New("the command did not go over the connection that confirms")
}
