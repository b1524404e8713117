// Package articles has the lock of the articles that puts a time stamp into the value, with the lines that the
// articles get wrong next to those that are right. docs/learn/articles.md has them in a table; a test shows what each does.
package articles

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// redis is as much of a Redis as this lock needs. nil stands for (nil).
type redis struct{ values sync.Map }

func (r *redis) setnx(key, value string) int {
	if _, there := r.values.LoadOrStore(key, value); there {
		return 0
	}
	return 1
}

func (r *redis) get(key string) *string { return reply(r.values.Load(key)) }

func (r *redis) getset(key, value string) *string { return reply(r.values.Swap(key, value)) }

func (r *redis) del(key string) { r.values.Delete(key) }

func reply(value any, there bool) *string {
	if !there {
		return nil
	}
	text := strings.Clone(value.(string)) // it comes over the network
	return &text
}

// lines are those that some article gets wrong.
type lines struct {
	stamp  func(time.Time) int64               // the time as the value says it
	look   func(setnx int) bool                // whether somebody has the key, so that its stamp counts
	lapsed func(until, now int64) bool         // whether the lock may be taken over
	first  func(old *string, lapsed bool) bool // whether GETSET made this client the holder
	split  func(value string) (token, until string)
	swap   func(token string, until int64) string // the value for GETSET
	equal  func(a, b string) bool                 // of two tokens
}

var right = lines{
	stamp:  time.Time.UnixMilli,
	look:   func(setnx int) bool { return setnx == 0 },
	lapsed: func(until, now int64) bool { return until <= now },
	first:  func(old *string, lapsed bool) bool { return old == nil || lapsed },
	split: func(value string) (token, until string) {
		i := strings.LastIndex(value, "-") // a UUID has four of its own
		return value[:i], value[i+1:]
	},
	swap:  func(token string, until int64) string { return fmt.Sprintf("%s-%d", token, until) },
	equal: func(a, b string) bool { return a == b },
}

// A mistake is one wrong line, and the property of the suite that shows it.
type mistake struct {
	name, property string
	make           func(*lines)
}

var mistakes = []mistake{
	{"setnx == 1", "Exclusive", func(l *lines) {
		l.look = func(setnx int) bool { return setnx == 1 }
	}},
	{"the expiry test is inverted", "DeadlineIsSafe", func(l *lines) {
		l.lapsed = func(until, now int64) bool { return until > now }
	}},
	{"nil is taken for a refusal", "NoGhost", func(l *lines) {
		l.first = func(old *string, lapsed bool) bool { return old != nil && lapsed }
	}},
	{"split at the first dash", "Exclusive", func(l *lines) {
		l.split = func(value string) (token, until string) {
			parts := strings.Split(value, "-")
			return parts[0], parts[1]
		}
	}},
	{"GETSET without the token", "NoGhost", func(l *lines) {
		l.swap = func(_ string, until int64) string { return fmt.Sprintf("-%d", until) }
	}},
	{"a stamp in seconds", "DeadlineIsSafe", func(l *lines) {
		l.stamp = time.Time.Unix
	}},
	{"strings compared as references", "ReleaseFrees", func(l *lines) {
		l.equal = func(a, b string) bool { return unsafe.StringData(a) == unsafe.StringData(b) } // Java's a == b
	}},
}

// stampLock is the lock: SETNX with the token and the time at which the lock lapses, take-over by GETSET.
type stampLock struct {
	driver.Unsupported
	*redis
	lines
	gate conformance.Gate
}

var _ driver.Protocol = stampLock{}

func (l stampLock) Acquire(_ context.Context, c driver.Claim) (g driver.Grant, err error) {
	held := &strategy.HeldError{Name: c.Name}
	until := l.stamp(time.Now().Add(c.TTL))
	var setnx int
	l.gate("SETNX", func() { setnx = l.setnx(c.Key, fmt.Sprintf("%s-%d", c.Token, until)) })
	if !l.look(setnx) {
		return g, nil
	}
	var value, old *string
	l.gate("GET", func() { value = l.get(c.Key) })
	if value != nil && !l.passed(*value) {
		return g, held
	}
	l.gate("GETSET", func() { old = l.getset(c.Key, l.swap(c.Token, until)) })
	if !l.first(old, old != nil && l.passed(*old)) {
		return g, held
	}
	return g, nil
}

func (l stampLock) passed(value string) bool {
	_, stamp := l.split(value)
	until, err := strconv.ParseInt(stamp, 10, 64)
	return err != nil || l.lapsed(until, l.stamp(time.Now()))
}

// Extend is GET, compare, GETSET.
func (l stampLock) Extend(_ context.Context, c driver.Claim) (g driver.Grant, err error) {
	if token := l.holder(c.Key); !l.equal(token, c.Token) {
		return g, &strategy.LostError{Name: c.Name, Holder: token}
	}
	l.getset(c.Key, l.swap(c.Token, l.stamp(time.Now().Add(c.TTL))))
	return g, nil
}

// Release is GET, compare, DEL.
func (l stampLock) Release(_ context.Context, c driver.Claim) (o driver.Outcome, err error) {
	if token := l.holder(c.Key); !l.equal(token, c.Token) {
		return o, &strategy.LostError{Name: c.Name, Holder: token}
	}
	l.del(c.Key)
	return o, nil
}

// Undo is Release. This server executes commands in the order of the calls, so what is not there cannot come any more.
func (l stampLock) Undo(ctx context.Context, c driver.Claim) error {
	l.Release(ctx, c)
	return nil
}

func (l stampLock) holder(key string) string {
	if value := l.get(key); value != nil {
		token, _ := l.split(*value)
		return token
	}
	return ""
}
