package nemesis_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/history"
)

// TestPausedHolder: a holder reads, looks whether it still has the lock, is stopped, and
// writes when it goes on. Its lock has long been another's, who has read and written,
// too. No lock can prevent that: exclusion holds by what each believed, and one of the two
// updates is lost. With a fence the store refuses the late one.
func TestPausedHolder(t *testing.T) {
	servers := redistest.Nodes(t, subjects.Most(tried()))
	told, err := subjects.Bootstrap(t.Context(), tried(), servers)
	check(t, err)
	t.Cleanup(func() { check(t, subjects.UndoBootstrap(context.Background(), told)) })
	for _, v := range tried() {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			store, err := contender.OpenStore()
			check(t, err)
			defer store.Close()
			open := func(name string, ttl, opTimeout time.Duration) *contender.Contender {
				s := contender.Setup{Name: name, Variant: v.Name, TTL: ttl, OpTimeout: opTimeout, Store: store.Addr()}
				for _, server := range servers[:v.Servers] {
					s.Addrs = append(s.Addrs, server.Addr())
				}
				c, err := contender.Start(ctx, s)
				check(t, err)
				t.Cleanup(func() {
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				})
				return c
			}
			// The TTL is one in which a busy machine gets from the grant to the stop.
			paused := open("paused", 3*time.Second, time.Second)
			rival := open("rival", 20*time.Second, 5*time.Second)
			lock := fmt.Sprintf("paused holder %d %d", os.Getpid(), names.Add(1))

			late, err := paused.Acquire(ctx, contender.Bid{Lock: lock})
			check(t, err)
			_, err = late.Read(ctx)
			check(t, err)
			written := make(chan error, 1)
			go func() { written <- late.WriteAfterStop(ctx, "the late one's") }()
			check(t, paused.Stopped(ctx))

			next, err := rival.Acquire(ctx, contender.Bid{Lock: lock})
			check(t, err)
			_, err = next.Read(ctx)
			check(t, err)
			check(t, next.Write(ctx, "the rival's"))
			check(t, paused.Thaw())
			err = <-written
			check(t, next.Release(ctx))

			var ops []history.Op
			for _, c := range []*contender.Contender{paused, rival} {
				more, err := c.Ops()
				check(t, err)
				ops = append(ops, more...)
			}
			lost := history.NoLostUpdate(ops)
			if v.Fenced {
				if !errors.Is(err, contender.ErrStale) || store.Value(lock) != "the rival's" || len(lost) > 0 {
					t.Errorf("the late write: %v; stored is %q, %d updates lost; want ErrStale, the rival's, none", err, store.Value(lock), len(lost))
				}
			} else if err != nil || store.Value(lock) != "the late one's" || len(lost) == 0 {
				t.Errorf("the late write: %v; stored is %q, %d updates lost; want nil, the late one's, and the rival's update lost", err, store.Value(lock), len(lost))
			}
			others := history.Judge(ops, history.Rules{Reentrant: v.Reentrant, Fenced: v.Fenced})
			others = slices.DeleteFunc(others, func(v history.Violation) bool { return v.Property == "NoLostUpdate" })
			if len(others) > 0 {
				t.Errorf("found %v: want that nobody believes what is not so", others)
			}
		})
	}
}

var names atomic.Int64

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
