package setnxgetset

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/strategy"
)

// What the key holds: 1700000000000:token, or 1700000000000 alone.

const (
	// earliest is the least stamp, of March 1973. A lesser number comes from a clock that
	// was never set, or counts seconds: read as milliseconds, a lock that is held would
	// have lapsed.
	earliest = 100_000_000_000

	// farthest is how far ahead a stamp may be: ServiceStack stamps a lock without
	// time-out for 365 days. More would lock for ever by a slip.
	farthest = 366 * 24 * time.Hour
)

// A stamp is what a key said when it was read.
type stamp struct {
	absent bool          // nothing: there was no key
	token  string        // whose it is; where there is none, the digits
	until  int64         // Unix milliseconds
	left   time.Duration // until then, by our clock; 0: it has lapsed
}

func (s stamp) lapsed() bool { return s.left <= 0 }

// read reads a value of the claim's key. A value that is no stamp is an error. It must
// not count as held, because waiters would wait for ever, and not as lapsed.
func (p *protocol) read(c driver.Claim, reply any) (stamp, error) {
	if reply == nil {
		return stamp{absent: true}, nil
	}
	value, ok := reply.([]byte)
	if !ok {
		return stamp{}, rediskit.BadReply(p.Name(), reply)
	}
	digits, token, tokened := strings.Cut(string(value), ":")
	if !tokened {
		token = digits
	}
	until, err := strconv.ParseUint(digits, 10, 63) // no sign, no space, no more than an int64 holds
	now := p.now().UnixMilli()
	if err != nil || token == "" || until < earliest || int64(until)-farthest.Milliseconds() > now {
		return stamp{}, p.refused("NOLOCK the key %s holds no timestamp lock: %.100q", c.Key, strategy.ShortToken(string(value)))
	}
	left := time.Duration(max(int64(until)-now, 0)) * time.Millisecond
	return stamp{token: token, until: int64(until), left: left}, nil
}

// value is what a holder writes: a stamp ttl from now, and not before atLeast.
func (p *protocol) value(token string, ttl time.Duration, atLeast int64) (string, error) {
	until := p.now().Add(ttl).UnixMilli()
	if until < earliest { // everybody would take it for lapsed, or for no lock
		return "", fmt.Errorf("locks: the clock says %v, and a lock is stamped by it: allowed is any time after March 1973", p.now())
	}
	return strconv.FormatInt(max(until, atLeast), 10) + ":" + token, nil
}

// held is the refusal of a claim by the holder that has stamped the key.
func (s stamp) held(c driver.Claim) error {
	return &strategy.HeldError{Name: c.Name, Holder: s.token, TTL: s.left}
}

// ownedBy returns nil if the token holds the lock. A holder whose stamp has passed
// does not.
func (s stamp) ownedBy(c driver.Claim, token string) error {
	switch {
	case s.absent || s.token != token && s.lapsed():
		return &strategy.LostError{Name: c.Name}
	case s.token != token:
		return &strategy.LostError{Name: c.Name, Holder: s.token}
	case s.lapsed():
		return &strategy.LostError{Name: c.Name, Lapsed: true, Err: errors.New("its stamp has passed, so anybody may have it")}
	}
	return nil
}

// refused is for what the server holds, and we do not touch.
func (p *protocol) refused(format string, args ...any) error {
	return &strategy.ServerError{Node: p.Name(), Kind: strategy.ErrRefused, Err: fmt.Errorf(format, args...)}
}
