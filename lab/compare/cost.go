package compare

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// namePrefix begins the names of all locks that are taken for measuring.
const namePrefix = "compare "

// freshName is a lock that nobody else uses.
func freshName() string { return namePrefix + rand.Text() }

const (
	// costRounds is how often each call is counted: once would do, if it were
	// certain that nothing else is ever sent.
	costRounds = 20

	// mostKeys is how many keys a server may have to be looked through for what a
	// lock leaves behind: somebody may use it.
	mostKeys = 100_000
)

// cost counts what an uncontended lock sends to all its servers. Two strategies, as two processes would have them,
// take part: one holds the lock while the other tries.
func cost(ctx context.Context, of contestant) (*Cost, error) {
	name := freshName()
	defer sweep(ctx, of.servers, name)
	var m Meter
	open, end := of.opener(&m)
	defer end()
	holder, err := open(patient)
	if err != nil {
		return nil, err
	}
	defer holder.Close()
	rival, err := open(patient)
	if err != nil {
		return nil, err
	}
	defer rival.Close()
	var lease strategy.Lease
	calls := [3]func() error{
		func() (err error) {
			lease, err = holder.NewLock(name).Acquire(ctx)
			return err
		},
		func() error {
			l, err := rival.NewLock(name).TryAcquire(ctx)
			if err == nil {
				return errors.Join(errors.New("the lock was granted while another held it"), l.Release(ctx))
			}
			if errors.Is(err, strategy.ErrHeld) {
				return nil
			}
			return err
		},
		func() error { return lease.Release(ctx) },
	}
	var all [3]sent
	for i := -1; i < costRounds; i++ { // the first dials, and loads scripts
		for k, call := range calls {
			m.take()
			if err := call(); err != nil {
				return nil, err
			}
			m.settle(ctx, len(of.servers))
			if i >= 0 {
				all[k].add(m.take())
			}
		}
	}
	c := &Cost{Acquire: all[0].each(costRounds), HeldTry: all[1].each(costRounds), Release: all[2].each(costRounds)}
	c.KeysLeft, err = left(ctx, of.servers, holder)
	return c, err
}

// left is how many keys stay of a lock; nil: not counted.
func left(ctx context.Context, servers []*redistest.Server, st strategy.Strategy) (*int, error) {
	name := freshName()
	defer sweep(ctx, servers, name)
	lease, err := st.NewLock(name).Acquire(ctx)
	if err == nil {
		err = lease.Release(ctx)
	}
	if err != nil {
		return nil, err
	}
	n, counted := 0, true
	err = each(ctx, servers, func(conn redis.Conn) error {
		keys, err := keysOf(ctx, conn, name)
		n += len(keys)
		counted = counted && keys != nil
		return err
	})
	if err != nil || !counted {
		return nil, err
	}
	return &n, nil
}

// each lends do a connection to one server after another.
func each(ctx context.Context, servers []*redistest.Server, do func(redis.Conn) error) error {
	for _, s := range servers {
		conn, err := s.Pool().GetContext(ctx)
		if err == nil {
			err = errors.Join(do(conn), conn.Close())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.Addr(), err)
		}
	}
	return nil
}

// keysOf finds the keys with a lock's name in theirs. nil: there are too many keys
// to look through.
func keysOf(ctx context.Context, conn redis.Conn, name string) ([]string, error) {
	size, err := redis.Int(redis.DoContext(conn, ctx, "DBSIZE"))
	if err != nil || size > mostKeys {
		return nil, err
	}
	return scan(ctx, conn, name)
}

// scan is keysOf, however many keys there are.
func scan(ctx context.Context, conn redis.Conn, name string) ([]string, error) {
	found := []string{}
	for cursor := "0"; ; {
		page, err := redis.Values(redis.DoContext(conn, ctx, "SCAN", cursor, "MATCH", "*"+name+"*", "COUNT", 1000))
		if err != nil {
			return nil, err
		}
		var keys []string
		if _, err := redis.Scan(page, &cursor, &keys); err != nil {
			return nil, err
		}
		for _, k := range keys {
			if strings.Contains(k, name) {
				found = append(found, k)
			}
		}
		if cursor == "0" {
			return found, nil
		}
	}
}

// sweep removes what a lock of this name has left on the servers, which may be
// somebody's: fence counters. It does its best; they harm nobody.
func sweep(ctx context.Context, servers []*redistest.Server, name string) {
	sweepOurs(ctx, servers, name, func(string) bool { return true })
}

// sweepOurs is sweep for many locks whose names begin alike: those of which ours says so.
func sweepOurs(ctx context.Context, servers []*redistest.Server, name string, ours func(key string) bool) {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	for i := range servers { // those after one that fails as well
		each(ctx, servers[i:i+1], func(conn redis.Conn) error { //nolint:errcheck // its best
			keys, err := keysOf(ctx, conn, name)
			return remove(ctx, conn, slices.DeleteFunc(keys, func(k string) bool { return !ours(k) }), err)
		})
	}
}

func remove(ctx context.Context, conn redis.Conn, keys []string, err error) error {
	if err == nil && len(keys) > 0 {
		_, err = redis.DoContext(conn, ctx, "DEL", redis.Args{}.AddFlat(keys)...)
	}
	return err
}

// Sweep removes all keys with this text in theirs, also when ctx is over.
func Sweep(ctx context.Context, servers []*redistest.Server, text string) error {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	err := each(ctx, servers, func(conn redis.Conn) error {
		keys, err := scan(ctx, conn, text)
		return remove(ctx, conn, keys, err)
	})
	if err != nil {
		return fmt.Errorf("keys with %s in them may be left: %w", text, err)
	}
	return nil
}
