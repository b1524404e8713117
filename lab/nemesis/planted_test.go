package nemesis_test

// Locks with planted mistakes: the nemesis finds each of them, and what a strategy does not claim to survive.

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/broken"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/lab/nemesis"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/rwlock"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

// A plant is a lock with a fault of its own, and the property that must tell of it.
type plant struct {
	subjects.Variant
	finds  string
	faults []string      // nil: all that the whole one survives
	storm  time.Duration // 0: short
	calm   time.Duration // 0: hardly any

	overstay, workers, try int // 0: as usual

	permits   int // of a lock that several may hold
	readWrite bool
}

func planted() []plant {
	script := func(name string, spoil func(n driver.Node, p driver.Protocol) driver.Protocol) subjects.Variant {
		return subjects.Variant{
			Name: "planted-" + name, Package: "planted", Servers: 1, Fenced: true,
			On: func(nodes []driver.Node) driver.Protocol { return spoil(nodes[0], luascript.On(nodes[0])) },
		}
	}
	// The known weaknesses of a package must not excuse this.
	grantedThoughHeld := func(name string, on func(driver.Node) driver.Protocol) plant {
		return plant{finds: "Exclusion", faults: []string{"kill"}, Variant: subjects.Variant{
			Name: "planted-granted-though-held-" + name, Package: name, Servers: 1,
			On: func(nodes []driver.Node) driver.Protocol { return broken.GrantsSome(on(nodes[0]), false) },
		}}
	}
	// A semaphore whose requests a spoilt node changes.
	permits := func(name string, spoilt broken.Lock) subjects.Variant {
		return subjects.Variant{
			Name: "planted-" + name, Package: "semaphore", Servers: 1, Fenced: true,
			On: func(nodes []driver.Node) driver.Protocol { return semaphore.On(spoilt.Node(nodes[0]), 3) },
		}
	}
	counts := func(name string, permits int) subjects.Variant {
		return subjects.Variant{
			Name: "planted-" + name, Package: "semaphore", Servers: 1, Fenced: true,
			On: func(nodes []driver.Node) driver.Protocol { return semaphore.On(nodes[0], permits) },
		}
	}
	readWrite := func(name string, spoilt broken.Lock) subjects.Variant {
		return subjects.Variant{
			Name: "planted-" + name, Package: "rwlock", Servers: 1, Fenced: true,
			On: func(nodes []driver.Node) driver.Protocol { return rwlock.On(spoilt.Node(nodes[0])) },
		}
	}
	return []plant{
		{
			finds: "Exclusion", readWrite: true,
			Variant: readWrite("reader-next-to-writer", broken.GrantsNextToHolders("read", ttl)),
		},
		{
			finds: "Exclusion", readWrite: true,
			Variant: readWrite("writer-next-to-reader", broken.GrantsNextToHolders("write", ttl)),
		},
		{
			// Nobody waits, because readers do not come in next to a writer that waits: so nobody would renew the dead.
			finds: "HonestAmbiguity", readWrite: true, overstay: 500, workers: 1, try: 1, calm: nemesis.Calm, faults: []string{"forget scripts"},
			Variant: readWrite("readers-share-one-expiry", broken.SharesExpiry(ttl)),
		},
		{
			finds: "Exclusion", readWrite: true, faults: []string{"kill"},
			Variant: readWrite("downgrade-with-a-gap", broken.DowngradesInTwo(ttl)),
		},
		{finds: "Exclusion", permits: 3, Variant: counts("one-permit-too-many", 4)},
		{finds: "HonestAmbiguity", permits: 3, try: 1, Variant: counts("one-permit-too-few", 2), faults: []string{"kill"}},
		{
			finds: "Exclusion", permits: 3,
			Variant: permits("several-permits-count-as-one", broken.CountsSeveralPermitsAsOne),
		},
		{
			finds: "Ownership", permits: 3,
			Variant: permits("releases-anothers-permit", broken.ReleasesAnothersPermit),
		},
		{
			finds: "DeadlockFree", permits: 3, overstay: 20, calm: nemesis.Calm, faults: []string{"kill"},
			Variant: permits("permits-share-one-expiry", broken.SharesExpiry(ttl)),
		},
		grantedThoughHeld("setnxpx", func(n driver.Node) driver.Protocol { return setnxpx.On(n) }),
		grantedThoughHeld("setnxgetset", func(n driver.Node) driver.Protocol { return setnxgetset.On(n) }),
		{
			finds: "Exclusion", overstay: 30,
			Variant: script("blind-release", func(n driver.Node, _ driver.Protocol) driver.Protocol {
				return luascript.On(broken.ReleasesAnything.Node(n)) // though it may be another's by now
			}),
		},
		{
			finds: "Exclusion", faults: []string{"slow network"}, overstay: 10,
			Variant: script("late-grants-count", func(_ driver.Node, p driver.Protocol) driver.Protocol {
				return broken.CountsFromTheReply.Protocol(p)
			}),
		},
		{
			finds: "Exclusion",
			Variant: script("granted-though-held", func(_ driver.Node, p driver.Protocol) driver.Protocol {
				return broken.GrantsSome(p, true)
			}),
		},
		{
			finds: "DeadlockFree", calm: nemesis.Calm, faults: []string{"kill"},
			Variant: script("no-expiry", func(n driver.Node, p driver.Protocol) driver.Protocol {
				return broken.NeverExpires(p, n)
			}),
		},
		{
			finds: "DeadlockFree", faults: []string{"kill"}, storm: 20 * time.Second, // no calm shows it
			Variant: subjects.Variant{
				Name: "planted-quorum-without-expiry", Package: "redlock", Servers: 5, Guarded: true,
				On: func(nodes []driver.Node) driver.Protocol {
					return broken.NeverExpires(redlock.On(nodes, redlock.WithNodeTimeout(time.Minute)), nodes...) // a majority is enough
				},
			},
		},
		{
			finds: "FenceOrder",
			Variant: script("fences-of-ones-own", func(_ driver.Node, p driver.Protocol) driver.Protocol {
				return broken.HasFencesOfItsOwn.Protocol(p)
			}),
		},
		{
			finds: "Exclusion",
			Variant: subjects.Variant{
				Name: "planted-quorum-of-one", Package: "planted", Servers: 5, Guarded: true,
				On: func(nodes []driver.Node) driver.Protocol {
					var each []driver.Protocol
					for _, n := range nodes {
						each = append(each, luascript.On(n, luascript.WithoutFences()))
					}
					return broken.AnyOf{Each: each}
				},
			},
		},
		{
			finds: "Exclusion", faults: []string{"flush"}, overstay: 10,
			Variant: subjects.Variant{
				Name: "planted-unguarded", Package: "redlock", Servers: 5,
				On: func(nodes []driver.Node) driver.Protocol {
					return redlock.On(nodes, redlock.WithNodeTimeout(time.Minute), redlock.WithoutGuard())
				},
			},
		},
	}
}

// ttl is that of the nemesis.
const ttl = 600 * time.Millisecond

// exitCode is what a contender's process ends with: as under the race detector, when there
// was one.
var exitCode atomic.Int64

// endsBadly is a strategy of which processes die that have closed it, and had an excuse.
func endsBadly() subjects.Variant {
	return subjects.Variant{Name: "planted-ends-badly", Package: "planted", Servers: 1, On: func(nodes []driver.Node) driver.Protocol {
		return closesBadly{&broken.Protocol{Protocol: luascript.On(nodes[0])}}
	}}
}

type closesBadly struct{ *broken.Protocol }

func (c closesBadly) Close() error {
	exitCode.Store(66)
	return errors.Join(c.Protocol.Close(), &strategy.ServerError{Kind: strategy.ErrUnknown, Err: errors.New("planted")})
}

// TestBadEnd: a process that ends otherwise than it should is reported.
func TestBadEnd(t *testing.T) {
	t.Parallel()
	r := borrow(t, endsBadly())
	c := nemesis.Config{Variant: endsBadly(), Seed: 1, For: 2 * time.Second, Calm: time.Second}
	if _, err := nemesis.Run(t.Context(), r, c); !errors.Is(err, contender.ErrEnded) || !strings.Contains(err.Error(), "exit status 66") {
		t.Errorf("Run: %v, want ErrEnded, and the status", err)
	}
}

// TestPlanted: what is wrong with a lock is found. The short part plays a mistake that every
// round shows.
func TestPlanted(t *testing.T) {
	t.Parallel()
	for _, p := range planted() {
		if !soaks() && p.Name != "planted-quorum-of-one" {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			search(t, nemesis.Config{
				Variant: p.Variant, Faults: p.faults, For: p.storm, Calm: p.calm, Overstay: p.overstay, Workers: p.workers, Try: p.try, Permits: p.permits, ReadWrite: p.readWrite,
			}, p.finds)
		})
	}
}

// TestNotSurvived: what a strategy does not claim to survive it does not, and that is seen.
func TestNotSurvived(t *testing.T) {
	if !soaks() {
		t.Skip("NOT PROVEN: what strategies do not survive: that needs -for, as in make soak")
	}
	t.Parallel()
	for _, c := range tried() {
		for _, fault := range nemesis.NotSurvived(c.Variant) {
			t.Run(c.Variant.Name+"/"+fault, func(t *testing.T) {
				t.Parallel()
				c.Faults, c.Overstay = []string{fault}, 10
				search(t, c, "Exclusion")
			})
		}
	}
}

// searchRounds is how many rounds a search lasts in which the machine was fast enough.
const searchRounds = 12

// forgets reports whether a server that was restarted without its data was back before the locks' TTL was over. If none
// was, as on a machine where a restart takes long, there was nothing to forget. Other faults always leave something.
func forgets(r *nemesis.Report) bool {
	restarted := false
	for _, op := range r.Ops {
		if op.Kind == history.KindFault && strings.HasPrefix(op.Note, "restart empty") {
			if op.End-op.Start < ttl/2 {
				return true
			}
			restarted = true
		}
	}
	return !restarted
}

// search runs the nemesis in short rounds until it finds that a property is violated. The
// seeds are the same each time.
func search(t *testing.T, c nemesis.Config, property string) {
	t.Helper()
	if c.Calm == 0 {
		c.Calm = time.Second
	}
	c.For = cmp.Or(c.For, 4*time.Second) + c.Calm
	r := borrow(t, c.Variant)
	var last *nemesis.Report
	for rounds, busy := 0, 0; rounds < searchRounds; {
		c.Seed++
		last = run(t, r, c)
		if i := slices.IndexFunc(last.Found, func(v history.Violation) bool { return v.Property == property }); i >= 0 {
			t.Logf("in round %d: %v", c.Seed, last.Found[i])
			var picture bytes.Buffer
			if err := last.Picture(&picture); err != nil || !bytes.Contains(picture.Bytes(), []byte(property)) {
				t.Errorf("a picture of %d bytes, and %v, want one that names %s", picture.Len(), err, property)
			}
			return
		}
		if !tooSlow(last, c) && forgets(last) {
			rounds++
		} else if busy++; busy > busyRounds*searchRounds {
			t.Skipf("INCONCLUSIVE: that %s is found to violate %s: this machine was too slow in %d rounds of %d", c.Variant.Name, property, busy, c.Seed)
		}
	}
	tell(t, last)
	t.Errorf("%d rounds have not shown that %s is violated", searchRounds, property)
}
