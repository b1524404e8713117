package nodetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// each sends commands until one fails.
func each(c driver.Conn, cmds ...[]any) error {
	for _, cmd := range cmds {
		if _, err := c.Do(cmd[0].(string), cmd[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// A session is one connection: what WATCH and MULTI leave on it is there for EXEC, and what is
// left for nobody is not.
func sessionKeepsTransactions(t *testing.T, s Subject) {
	s.each(t, func(t *testing.T, protocol int) {
		n := s.Open(t, Options{URL: redistest.Shared(t).URL(), Protocol: protocol})
		key := t.Name()
		transact := func(meanwhile string) (reply any) {
			t.Helper()
			err := n.Session(t.Context(), Soon(), key, func(c driver.Conn) error {
				if _, err := c.Do("watch", key); err != nil {
					return err
				}
				if meanwhile != "" {
					if _, err := n.Do(t.Context(), Soon(), "SET", key, meanwhile, "PX", 60000); err != nil {
						return err
					}
				}
				err := each(c, []any{"MULTI"}, []any{"SET", key, "mine", "PX", 60000})
				if err != nil {
					return err
				}
				reply, err = c.Do("EXEC")
				return err
			})
			if err != nil {
				t.Fatalf("Session = %v", err)
			}
			return reply
		}
		done := []any{[]byte("OK")}
		if got := transact(""); !reflect.DeepEqual(got, done) {
			t.Errorf("EXEC = %v, want [OK]", got)
		}
		if got := transact("other"); got != nil {
			t.Errorf("EXEC = %v, want nil: the key has changed", got)
		}
		for _, left := range [][][]any{{{"WATCH", key}}, {{"MULTI"}}, {{"WATCH", key}, {"MULTI"}}} {
			if err := n.Session(t.Context(), Soon(), key, func(c driver.Conn) error { return each(c, left...) }); err != nil {
				t.Fatal(err)
			}
			func() {
				defer func() { recover() }()                                    //nolint:errcheck // it is fn's own
				n.Session(t.Context(), Soon(), key, func(c driver.Conn) error { //nolint:errcheck // it panics
					if err := each(c, left...); err != nil {
						t.Error(err)
					}
					panic("fn's")
				})
			}()
			redistest.Do(t, redistest.Shared(t), "SET", key, "changed", "PX", 60000)
			if got := transact(""); !reflect.DeepEqual(got, done) {
				t.Errorf("after %v: EXEC = %v, want [OK]: its connection was not clean", left, got)
			}
		}
		err := n.Session(t.Context(), Soon(), key, func(c driver.Conn) error {
			_, err := c.Do("NOSUCH")
			return err
		})
		Want(t, "an unknown command", err, strategy.ErrRefused)
	})
}

// Next to an error in an array other commands took effect, whatever kind it is; and the connection that
// had it mixes nothing up.
func sessionTellsErrorsAmongReplies(t *testing.T, s Subject) {
	s.each(t, func(t *testing.T, protocol int) {
		n := s.Open(t, Options{URL: redistest.Shared(t).URL(), Protocol: protocol})
		for _, words := range []string{"ERR mine", "OOM mine", "READONLY mine", "WRONGTYPE mine"} {
			key := t.Name() + words
			err := n.Session(t.Context(), Soon(), key, func(c driver.Conn) error {
				return each(c, []any{"MULTI"}, []any{"SET", key, "v", "PX", 60000},
					[]any{"EVAL", "return redis.error_reply(ARGV[1])", 1, key, words},
					[]any{"SET", key, "w", "PX", 60000}, []any{"EXEC"})
			})
			Want(t, "EXEC with "+words, err, strategy.ErrUnknown)
			wantWords(t, "EXEC with "+words, err, strings.TrimPrefix(words, "ERR ")) // some clients take that off
			if got, err := n.Do(t.Context(), Soon(), "GET", key); err != nil || fmt.Sprintf("%s", got) != "w" {
				t.Errorf("GET after it = %s, %v, want w", got, err)
			}
		}
	})
}

// Once its context has ended, or fn has, a session sends nothing.
func sessionEndsWithItsContext(t *testing.T, s Subject) {
	n, f := s.on(t, s.newest(), (*Conn).Plain)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	var kept driver.Conn
	err := n.Session(ctx, Soon(), "k", func(c driver.Conn) error {
		kept = c
		if _, err := c.Do("GET", "k"); err != nil {
			t.Errorf("GET = %v, want nil", err)
		}
		cancel(cause)
		_, err := c.Do("SET", "k", "v")
		Want(t, "a command after the context's end", err, strategy.ErrUnsent, cause)
		return err
	})
	Want(t, "Session", err, strategy.ErrUnsent, cause)
	_, err = kept.Do("SET", "k", "v")
	Want(t, "a command after the session", err, strategy.ErrUnsent)
	if got := f.Seen("SET"); got != 0 {
		t.Errorf("the server saw %d SETs, want none", got)
	}
}

// Connections that died at rest, as after a restart, are no reason to fail: neither those of which the client has heard, nor
// those that hang up only when they are asked.
func sessionPassesOverTheDead(t *testing.T, s Subject) {
	var dead atomic.Int32 // so many connections hang up
	n, f := s.on(t, s.newest(), func(c *Conn, cmd []string) {
		if int32(c.ID) <= dead.Load() {
			c.Close()
			return
		}
		c.Plain(cmd)
	})
	for _, die := range []func(){f.Cut, func() { dead.Store(int32(f.Dialled())) }} {
		if err := nested(t.Context(), n, 5); err != nil {
			t.Fatal(err)
		}
		die()
		if err := nested(t.Context(), n, 1); err != nil {
			t.Errorf("Session = %v, want nil on a new connection", err)
		}
	}
}
