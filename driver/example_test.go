// A complete protocol as an example, which the conformance suite judges.
package driver_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// table is a complete small protocol: a table of leases, as a database would have it, here in memory.
// Each method is one transaction.
type table struct {
	driver.Unsupported // Adopt, Check

	mu   sync.Mutex
	rows map[string]row // by key
	last uint64         // the last fence
}

type row struct {
	token string
	fence uint64
	until time.Time // by the server's clock
}

var _ driver.Protocol = (*table)(nil)

// holder returns the row of a key, if it counts.
func (t *table) holder(key string) (row, bool) {
	r, ok := t.rows[key]
	return r, ok && time.Now().Before(r.until)
}

// Acquire inserts the row, or replaces one that has expired.
func (t *table) Acquire(_ context.Context, c driver.Claim) (driver.Grant, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r, held := t.holder(c.Key); held {
		return driver.Grant{}, &strategy.HeldError{Name: c.Name, Holder: r.token, TTL: time.Until(r.until)}
	}
	t.last++
	t.rows[c.Key] = row{c.Token, t.last, time.Now().Add(c.TTL)}
	return driver.Grant{Fence: t.last}, nil
}

// Extend moves the expiry, if the token is still the holder.
func (t *table) Extend(_ context.Context, c driver.Claim) (driver.Grant, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, held := t.holder(c.Key)
	if !held || r.token != c.Token {
		return driver.Grant{}, &strategy.LostError{Name: c.Name, Holder: r.token}
	}
	r.until = time.Now().Add(c.TTL)
	t.rows[c.Key] = r
	return driver.Grant{}, nil
}

// Release deletes the row, if the token is still the holder.
func (t *table) Release(_ context.Context, c driver.Claim) (driver.Outcome, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r, held := t.holder(c.Key); !held || r.token != c.Token {
		return driver.Outcome{}, &strategy.LostError{Name: c.Name, Holder: r.token}
	}
	delete(t.rows, c.Key)
	return driver.Outcome{}, nil
}

// Undo is Release. Transactions take effect in order, so a row that is not there cannot appear any more.
func (t *table) Undo(ctx context.Context, c driver.Claim) error {
	t.Release(ctx, c) //nolint:errcheck // a row that is not there is what was asked for
	return nil
}

// ForceRelease is Release.
func (t *table) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return t.Release(ctx, c)
}

// Inspect reads the row.
func (t *table) Inspect(_ context.Context, c driver.Claim) (strategy.Info, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, held := t.holder(c.Key)
	if !held {
		return strategy.Info{Fence: t.last}, nil
	}
	return strategy.Info{Held: true, Token: r.token, TTL: time.Until(r.until), Fence: r.fence}, nil
}

// A protocol of sixty lines is a lock with waiting, renewal, deadlines, undo and events.
func Example() {
	server := &table{rows: map[string]row{}}
	locks, err := engine.New(server, strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	ctx := context.Background()
	err = strategy.Do(ctx, locks.NewLock("invoice/42"), func(ctx context.Context, lease strategy.Lease) error {
		fence, _ := lease.Fence()
		fmt.Println("held with fence", fence)
		_, err := locks.NewLock("invoice/42").TryAcquire(ctx)
		fmt.Println("held by another:", errors.Is(err, strategy.ErrHeld))
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// held with fence 1
	// held by another: true
	// error: <nil>
}

// The suite judges the protocol of the example, as it judges any other.
func TestExampleConforms(t *testing.T) {
	server := &table{rows: map[string]row{}}
	conformance.Run(t, conformance.Subject{
		Name: "table",
		Open: func(o strategy.Options) (strategy.Strategy, error) { return engine.New(server, o) },
		// The row stays, as an expired one does.
		Evict: func(_ context.Context, key string) error {
			server.mu.Lock()
			defer server.mu.Unlock()
			if r, ok := server.rows[key]; ok {
				r.until = time.Now()
				server.rows[key] = r
			}
			return nil
		},
		Fenced: true,
	})
}
