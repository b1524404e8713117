package nemesis_test

// Locks with planted mistakes: the nemesis finds each of them, and what a strategy does not claim to survive.

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/broken"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/lab/nemesis"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/rwlock"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/setnxpx"
)

// A plant is a lock with a fault of its own, and the property that must tell of it. For is how long the storm lasts.
type plant struct {
	finds string
	config
}

type config = nemesis.Config

func planted() []plant {
	one := func(name, pkg string, on func(driver.Node) driver.Protocol) subjects.Variant {
		return subjects.Variant{
			Name: "planted-" + name, Package: pkg, Servers: 1, Fenced: !strings.HasPrefix(pkg, "setnx"),
			On: func(nodes []driver.Node) driver.Protocol { return on(nodes[0]) },
		}
	}
	five := func(name, pkg string, guarded bool, on func([]driver.Node) driver.Protocol) subjects.Variant {
		return subjects.Variant{Name: "planted-" + name, Package: pkg, Servers: 5, Guarded: guarded, On: on}
	}
	script := func(name string, spoil func(driver.Node, driver.Protocol) driver.Protocol) subjects.Variant {
		return one(name, "planted", func(n driver.Node) driver.Protocol { return spoil(n, luascript.On(n)) })
	}
	permits := func(name string, permits int, spoilt broken.Lock) subjects.Variant {
		return one(name, "semaphore", func(n driver.Node) driver.Protocol { return semaphore.On(spoilt.Node(n), permits) })
	}
	readWrite := func(name string, spoilt broken.Lock) subjects.Variant {
		return one(name, "rwlock", func(n driver.Node) driver.Protocol { return rwlock.On(spoilt.Node(n)) })
	}
	patient := redlock.WithNodeTimeout(time.Minute)
	whole := broken.Lock{Node: func(n driver.Node) driver.Node { return n }}
	kill := []string{"kill"}
	return []plant{
		{"Exclusion", config{ReadWrite: true, Variant: readWrite("reader-next-to-writer", broken.GrantsNextToHolders("read", ttl))}},
		{"Exclusion", config{ReadWrite: true, Variant: readWrite("writer-next-to-reader", broken.GrantsNextToHolders("write", ttl))}},
		{"HonestAmbiguity", config{
			// Nobody waits, because readers do not come in next to a writer that waits: so nobody would renew the dead.
			ReadWrite: true, Overstay: 500, Workers: 1, Try: 1, Calm: nemesis.Calm, Faults: []string{"forget scripts"},
			Variant: readWrite("readers-share-one-expiry", broken.SharesExpiry(ttl)),
		}},
		{"Exclusion", config{ReadWrite: true, Faults: kill, Variant: readWrite("downgrade-with-a-gap", broken.DowngradesInTwo(ttl))}},
		{"Exclusion", config{Permits: 3, Variant: permits("one-permit-too-many", 4, whole)}},
		{"HonestAmbiguity", config{Permits: 3, Try: 1, Faults: kill, Variant: permits("one-permit-too-few", 2, whole)}},
		{"Exclusion", config{Permits: 3, Variant: permits("several-permits-count-as-one", 3, broken.CountsSeveralPermitsAsOne)}},
		{"Ownership", config{Permits: 3, Variant: permits("releases-anothers-permit", 3, broken.ReleasesAnothersPermit)}},
		{"DeadlockFree", config{
			Permits: 3, Overstay: 20, Calm: nemesis.Calm, Faults: kill,
			Variant: permits("permits-share-one-expiry", 3, broken.SharesExpiry(ttl)),
		}},
		// The known weaknesses of a package must not excuse these two.
		{"Exclusion", config{Faults: kill, Variant: one("granted-though-held-setnxpx", "setnxpx", func(n driver.Node) driver.Protocol {
			return broken.GrantsSome(setnxpx.On(n), false)
		})}},
		{"Exclusion", config{Faults: kill, Variant: one("granted-though-held-setnxgetset", "setnxgetset", func(n driver.Node) driver.Protocol {
			return broken.GrantsSome(setnxgetset.On(n), false)
		})}},
		{"Exclusion", config{Overstay: 30, Variant: script("blind-release", func(n driver.Node, _ driver.Protocol) driver.Protocol {
			return luascript.On(broken.ReleasesAnything.Node(n)) // though it may be another's by now
		})}},
		{"Exclusion", config{
			Faults: []string{"slow network"}, Overstay: 10,
			Variant: script("late-grants-count", func(_ driver.Node, p driver.Protocol) driver.Protocol { return broken.CountsFromTheReply.Protocol(p) }),
		}},
		{"Exclusion", config{Variant: script("granted-though-held", func(_ driver.Node, p driver.Protocol) driver.Protocol {
			return broken.GrantsSome(p, true)
		})}},
		{"DeadlockFree", config{Calm: nemesis.Calm, Faults: kill, Variant: script("no-expiry", func(n driver.Node, p driver.Protocol) driver.Protocol {
			return broken.NeverExpires(p, n)
		})}},
		{"FenceOrder", config{Variant: script("fences-of-ones-own", func(_ driver.Node, p driver.Protocol) driver.Protocol {
			return broken.HasFencesOfItsOwn.Protocol(p)
		})}},
		{"DeadlockFree", config{
			Faults: kill, For: 20 * time.Second, // no calm shows it; a majority is enough
			Variant: five("quorum-without-expiry", "redlock", true, func(nodes []driver.Node) driver.Protocol {
				return broken.NeverExpires(redlock.On(nodes, patient), nodes...)
			}),
		}},
		{"Exclusion", config{Variant: five("quorum-of-one", "planted", true, func(nodes []driver.Node) driver.Protocol {
			var each []driver.Protocol
			for _, n := range nodes {
				each = append(each, luascript.On(n, luascript.WithoutFences()))
			}
			return broken.AnyOf{Each: each}
		})}},
		{"Exclusion", config{
			Faults: []string{"flush"}, Overstay: 10,
			Variant: five("unguarded", "redlock", false, func(nodes []driver.Node) driver.Protocol {
				return redlock.On(nodes, patient, redlock.WithoutGuard())
			}),
		}},
	}
}

// ttl is that of the nemesis.
const ttl = 600 * time.Millisecond

// TestPlanted: what is wrong with a lock is found. The short part plays a mistake that every
// round shows.
func TestPlanted(t *testing.T) {
	t.Parallel()
	for _, p := range planted() {
		if !soaks() && p.Variant.Name != "planted-quorum-of-one" {
			continue
		}
		t.Run(p.Variant.Name, func(t *testing.T) {
			t.Parallel()
			search(t, p.config, p.finds)
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
		if op.Kind == history.KindFault && op.Value == "restart empty" {
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
	c.Calm = cmp.Or(c.Calm, time.Second)
	c.For = cmp.Or(c.For, 4*time.Second) + c.Calm
	r := borrow(t, c.Variant)
	var last *nemesis.Report
	for rounds, busy := 0, 0; rounds < searchRounds; {
		c.Seed++
		last = run(t, r, c)
		if i := slices.IndexFunc(last.Found, func(v history.Violation) bool { return v.Property == property }); i >= 0 {
			t.Logf("in round %d: %v", c.Seed, last.Found[i])
			if picture := last.Picture(); !strings.Contains(picture, "✗ ") {
				t.Errorf("the picture marks nothing:\n%s", picture)
			}
			return
		}
		if !tooSlow(last) && forgets(last) {
			rounds++
		} else if busy++; busy > busyRounds*searchRounds {
			t.Skipf("INCONCLUSIVE: that %s is found to violate %s: this machine was too slow in %d rounds of %d", c.Variant.Name, property, busy, c.Seed)
		}
	}
	t.Log(last)
	t.Errorf("%d rounds have not shown that %s is violated", searchRounds, property)
}
