// Two ways to one end: what holds of the one way holds of the other. A lease that was handed on is as good as one that the
// servers granted, and a place that a release takes is as good as one for which the head has asked.
package engine_test

import (
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// A direct grant is short, and extended once. So is what becomes of it when its holder hands it on before that.
func TestShortGrantIsHandedOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		a, b := houses(t, &m, strategy.Options{})
		holder := take(t, a)
		first, second := wait(bg, b), wait(bg, b)
		release(t, holder)
		release(t, first.got(t))
		l := second.got(t)
		time.Sleep(2 * successorTTL)
		is(t, "Err of a lease that was handed on", l.Err())
		if left := time.Until(l.Deadline()); left < valid-3*successorTTL {
			t.Errorf("the deadline is in %v, want that of a TTL of %v", left, ttl)
		}
		release(t, l)
		leftovers(t, &m)
	})
}

// The clocks are compared when a request leaves, also if that is the release of the holder before: however late its
// answer came, a direct grant after it does not seem younger than it is.
func TestDirectGrantAfterAPass(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &wire{delay: 400 * ms}
		r := record(&p.Memory)
		a, b := houses(t, p, strategy.Options{})
		c := open(t, p, strategy.Options{})
		holder := take(t, a)
		first, second, other := wait(bg, b), wait(bg, b), wait(bg, c)
		release(t, holder)
		l := first.got(t)
		time.Sleep(5 * ms) // its process's turn is over
		r.then(only(lockstest.OpPass, slow(0, 300*ms)))
		release(t, l)
		l = other.got(t)
		granted := time.Now()
		release(t, l)
		l = second.got(t)
		if most := granted.Add(successorTTL - driver.Drift(successorTTL)); l.Deadline().After(most) {
			t.Errorf("the deadline is %v after the lock expires", l.Deadline().Sub(most))
		}
		release(t, l)
		leftovers(t, &p.Memory)
	})
}
