// The server in memory next to the scripts of package semaphore and package rwlock: the same requests, and the same replies.
package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/rwlock"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { redistest.Main(m) }

type sharer interface {
	driver.Protocol
	driver.Sharer
}

// TestSharesAsScripts sends the same random requests to both. A round that takes so long that a direct grant may have ended in it
// is not judged.
func TestSharesAsScripts(t *testing.T) {
	n := redigonode.New(redistest.Shared(t).Pool())
	judged := 0
	for round := range 100 {
		seed := rand.Uint64()
		var m memory.Server
		permits := 3
		real, inMemory := semaphore.On(n, permits).(sharer), sharer(m.Shares(nil, permits))
		if round%2 == 1 {
			permits = 0
			real, inMemory = rwlock.On(n).(sharer), m.Shares(nil, 0)
		}
		key := fmt.Sprintf("%s:{%d}", t.Name(), seed)
		start := time.Now()
		replies := play(t, real, key, seed, permits)
		took := time.Since(start)
		if took < driver.SuccessorTTL(time.Minute)/2 {
			judged++
			for i, reply := range play(t, inMemory, key, seed, permits) {
				if reply != replies[i] {
					t.Fatalf("seed %d, permits %d: after\n%s\nthe server replies\n%s\nand the one in memory\n%s", seed, permits, strings.Join(replies[:i], "\n"), replies[i], reply)
				}
			}
		}
	}
	if judged == 0 {
		t.Skip("NOT PROVEN: the machine is too slow for any round")
	}
}

// play sends the requests that follow from the seed, and returns each with its reply.
func play(t *testing.T, p sharer, key string, seed uint64, permits int) (replies []string) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	ctx, due := t.Context(), time.Now().Add(time.Minute)
	on := driver.Claim{Name: "a", Key: key, TTL: time.Minute, FenceTTL: time.Minute, Due: due}
	for _, line := range []string{"r1", "r2", "w1", "w2"} {
		c := on
		c.Line = line
		if line[0] == 'r' {
			c.Share = 1
		}
		stop, err := p.Watch(ctx, c, func(driver.Notification) {})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	var claims []driver.Claim
	defer func() {
		for _, c := range claims {
			p.Undo(context.WithoutCancel(ctx), c) //nolint:errcheck // the key is of this round alone
		}
	}()
	tokens := 0
	fresh := func(queues bool) driver.Claim {
		c := on
		tokens++
		c.Token = fmt.Sprint("t", tokens)
		c.Share, c.Fences, c.Holds = int32(1+random.IntN(permits+1)), random.IntN(4), int32(random.IntN(4)) // one permit too many, too
		if permits == 0 {
			c.Share = int32(random.IntN(2))
		}
		if queues || random.IntN(3) > 0 {
			c.Line = fmt.Sprint("r", 1+random.IntN(2))
			if c.Share == 0 {
				c.Line = "w" + c.Line[1:]
			}
		}
		if len(claims) > 0 && random.IntN(4) == 0 {
			c.Joins = claims[random.IntN(len(claims))].Token
		}
		claims = append(claims, c)
		return c
	}
	again := func() driver.Claim {
		c := claims[random.IntN(len(claims))]
		c.Repeated = true
		return c
	}
	fence := uint64(0)
	for range 60 {
		var g driver.Grant
		var err error
		what := ""
		if len(claims) == 0 || random.IntN(3) == 0 {
			c := fresh(false)
			what = fmt.Sprintf("acquire %+v", told(c))
			g, err = p.Acquire(ctx, c)
		} else {
			c := again()
			hold := c
			hold.Token = driver.HoldToken(c.Token, random.IntN(max(c.Fences, int(c.Holds), 1)))
			switch random.IntN(7) {
			case 0:
				what = fmt.Sprintf("acquire again %+v", told(c))
				g, err = p.Acquire(ctx, c)
			case 1:
				next := again()
				if next.Line == "" || next.Token == c.Token {
					next = fresh(true)
				}
				if next.Joins = ""; permits > 0 {
					next.Holds = 0
				}
				what = fmt.Sprintf("pass %s to %+v", hold.Token, told(next))
				g, err = p.Pass(ctx, hold, next)
			case 2, 3:
				what = "release " + hold.Token
				_, err = p.Release(ctx, hold)
			case 4:
				what = "undo " + c.Token
				c.Grant.Start = time.Now() // no acquire of it can still arrive
				err = p.Undo(ctx, c)
				claims = slices.DeleteFunc(claims, func(x driver.Claim) bool { return x.Token == c.Token })
			case 5:
				next := fresh(false)
				next.Line, next.Fences, next.Holds, next.Joins = "", 0, 0, ""
				if next.Share = max(next.Share, c.Share); permits > 0 {
					next.Share = c.Share
				}
				claims[len(claims)-1] = next
				what = fmt.Sprintf("adopt %s by %s", hold.Token, told(next))
				g, err = p.Adopt(ctx, next, hold.Token)
			default:
				what = "extend " + hold.Token
				_, err = p.Extend(ctx, hold)
			}
		}
		info, _ := p.Inspect(ctx, on)
		replies = append(replies, fmt.Sprintf("%s: %s, then %d holds, and %v queue, new fence %t", what, said(g, err), info.Holds, info.Queue, info.Fence > fence))
		fence = info.Fence
	}
	return replies
}

// told is what matters of a claim.
func told(c driver.Claim) string {
	return fmt.Sprintf("%s share %d fences %d holds %d line %q repeated %t joins %q", c.Token, c.Share, c.Fences, c.Holds, c.Line, c.Repeated, c.Joins)
}

// said is what matters of a reply.
func said(g driver.Grant, err error) string {
	var held *strategy.HeldError
	switch {
	case errors.As(err, &held):
		return fmt.Sprintf("held, %d of %d, place %d, kept %t", held.Taken, held.Permits, g.Place, g.Kept)
	case err != nil:
		for _, kind := range []error{strategy.ErrLost, strategy.ErrRefused} {
			if errors.Is(err, kind) {
				return kind.Error()
			}
		}
		return err.Error()
	case g.Fence > 0:
		return fmt.Sprintf("granted, %d fences, %d holds", g.Fences, g.Holds)
	}
	return "done"
}
