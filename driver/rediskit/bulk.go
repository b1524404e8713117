package rediskit

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// A BulkScript extends many locks in one request. It is a Lua script, with what a protocol needs to use
// it for Extend and ExtendAll.
type BulkScript struct {
	Node driver.Node

	// Script gets the locks as KEYS, and as ARGV the token of each in turn and then their
	// TTLs in milliseconds: of each in turn, or one alone if all have the same. It answers
	// how many locks there are if all are extended; or else for each in turn: 1 is extended.
	Script *driver.Script

	// Most is how many locks one request renews: enough that requests hardly count, few
	// enough that the script does not keep others waiting (well under 1 ms).
	Most int

	// Refused reads any other answer.
	Refused func(c driver.Claim, answer any) error
}

// Extend is a protocol's, for one lock.
func (b BulkScript) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	var err error
	b.extend(ctx, []driver.Claim{c}, func(_ int, e error) { err = e })
	return driver.Grant{}, err
}

// ExtendAll is a [driver.BulkExtender]'s. If the server refuses a request because the locks lie in several slots of a
// cluster, or because its user may not touch one of them, it is made again for each lock.
func (b BulkScript) ExtendAll(ctx context.Context, cs []driver.Claim, done func(i int, g driver.Grant, err error)) {
	most := max(b.Most, 1)
	requests := (len(cs) + most - 1) / most
	sideBySide(requests, abreast, func(n int) {
		first := n * most
		b.extend(ctx, cs[first:min(first+most, len(cs))], func(i int, err error) { done(first+i, driver.Grant{}, err) })
	})
}

// abreast is how many requests of one ExtendAll are under way at a time. It is more than one, so that
// the servers and the network do not wait for us in between. It is not all, so that other callers on
// the same connection get in between.
const abreast = 4

func (b BulkScript) extend(ctx context.Context, cs []driver.Claim, done func(i int, err error)) {
	keys := make([]string, len(cs))
	args := make([]any, len(cs), len(cs)+1)
	due, ttl, ttls := cs[0].Due, cs[0].TTL, 1
	for i := range cs {
		c := &cs[i]
		keys[i], args[i] = c.Key, c.Token
		if c.TTL != ttl {
			ttls = len(cs)
		}
		if c.Due.Before(due) {
			due = c.Due
		}
	}
	for i := range ttls {
		args = append(args, cs[i].TTL.Milliseconds())
	}
	reply, err := b.Node.Eval(ctx, due, b.Script, keys, args...)
	if len(cs) > 1 && (SeveralSlots(err) || forbidden(err)) { // perhaps for one key
		b.extendEach(ctx, cs, done)
		return
	}
	answers, _ := reply.([]any)
	all := reply == int64(len(cs))
	for i := range cs {
		switch {
		case all, err != nil:
			done(i, err)
		case len(answers) != len(cs):
			done(i, BadReply(b.Node.Name(), reply))
		case answers[i] == int64(1):
			done(i, nil)
		default:
			done(i, b.Refused(cs[i], answers[i]))
		}
	}
}

// extendEach makes a request for each lock: in a cluster each lies where its name says. Some
// are under way at a time: one after the other they would take as many round trips as there are
// locks, and the last would come too late.
func (b BulkScript) extendEach(ctx context.Context, cs []driver.Claim, done func(i int, err error)) {
	sideBySide(len(cs), apart, func(i int) {
		b.extend(ctx, cs[i:i+1], func(_ int, err error) { done(i, err) })
	})
}

// sideBySide calls do for 0 to n-1, some at a time.
func sideBySide(n, atATime int, do func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(atATime, n) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	all.Wait()
}

// apart is how many locks of one request are renewed at a time where each needs its own.
const apart = 32

// SeveralSlots reports whether err says that a cluster refused, and did not run, a script over keys in
// several slots. For authors of a [driver.Node].
func SeveralSlots(err error) bool {
	return err != nil && errors.Is(err, strategy.ErrRefused) && strings.Contains(err.Error(), "CROSSSLOT")
}
