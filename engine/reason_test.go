// Tests what a waiter knows of a holder: in its own process, also after a pause of that process, and at the servers.
package engine

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

// TestGrantedTo: until the TTL is over the waiter knows what is left of it. Afterwards it does not: a negative TTL would
// mean that the holder's key never expires.
func TestGrantedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		l := &lease{claim: driver.Claim{Name: "n", Token: "t", Grant: driver.Grant{Start: now, TTL: time.Second}}}
		for _, want := range []time.Duration{time.Second, time.Millisecond, 0, 0} {
			time.Sleep(time.Until(now.Add(time.Second - want)))
			why := grantedTo(l)
			if why.held.Holder != "t" || why.held.TTL != want || !why.at.Equal(time.Now()) || !why.until.Equal(now.Add(time.Second)) {
				t.Errorf("grantedTo = %+v, %v known at %v, want TTL %v, known now", why.held, why.until, why.at, want)
			}
			if want == 0 {
				time.Sleep(1900 * time.Millisecond) // as after a pause
			}
		}
	})
}

// TestNextReason: behind a new holder the line sleeps until that holder's time ends, but not for longer than the last answer
// said, or a TTL from that.
func TestNextReason(t *testing.T) {
	at := time.Now()
	for _, row := range []struct{ until, longer, ttl, message, want time.Duration }{
		{until: 10, longer: 0, ttl: 10, message: 5, want: 5},
		{until: 10, longer: 20, ttl: 10, message: 25, want: 25},
		{until: 10, longer: 20, ttl: 10, message: 60, want: 30},
		{until: 30, longer: 0, ttl: 10, message: 60, want: 30},
		{until: 2, longer: 3, ttl: 10, message: 8, want: 8},
		{until: 2, longer: 3, ttl: 10, message: 60, want: 10},
		{until: 2, longer: 30, ttl: 10, message: 60, want: 32},
	} {
		r := reason{at: at, until: at.Add(row.until), longer: row.longer, silent: true}.next(at.Add(row.message), row.ttl)
		if got := r.until.Sub(at); got != row.want || r.longer != 0 || r.silent {
			t.Errorf("next of %+v = until %d, longer %d, silent %v; want until %d, and no more", row, got, r.longer, r.silent, row.want)
		}
	}
}

// TestSleepByPlace: the first in the servers' queue asks when the holder's TTL ends, and the n-th within n - 1 TTLs after
// that, but not later than the longest TTL, whatever place a server says.
func TestSleepByPlace(t *testing.T) {
	for _, ttl := range []time.Duration{contract.MinTTL, time.Hour, contract.MaxTTL} {
		c := &core{o: strategy.Options{TTL: ttl}}
		for _, place := range []int32{0, 1, 2, 4, math.MaxInt32} {
			most, longest := min(time.Duration(max(place-1, 0)), contract.MaxTTL/ttl)*ttl, time.Duration(0)
			for range 100 {
				r := c.reasonOf(&strategy.HeldError{TTL: ttl}, driver.Grant{Place: place})
				if r.longer < 0 || r.longer > most {
					t.Fatalf("place %d, TTL %v: it sleeps for %v longer, want %v at most", place, ttl, r.longer, most)
				}
				longest = max(longest, r.longer)
			}
			if longest < most/2 {
				t.Errorf("place %d, TTL %v: it sleeps for %v longer at most, want up to %v", place, ttl, longest, most)
			}
		}
	}
}
