// Tests how long a waiter sleeps for a reason.
package engine

import (
	"math"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

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
			t.Errorf("next of %+v = until %d, longer %d, silent %v; want until %d, and nothing else", row, got, r.longer, r.silent, row.want)
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
