package simulate_test

// Locks with planted mistakes: simulations find each of them, and what a strategy does not claim to survive.

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/broken"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
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

// seeds is how many are enough to find what is wrong.
const seeds = 20

// TestPlanted: what is wrong with a lock is found, and so is that a strategy does not survive what it does not claim to.
func TestPlanted(t *testing.T) {
	for _, p := range planted() {
		if !*allFlag && p.Variant.Name != "planted-blind-release" {
			continue
		}
		t.Run(p.Variant.Name, func(t *testing.T) {
			t.Parallel()
			search(t, p.config, p.finds)
		})
	}
	for _, c := range nemesis.Strategies() {
		if !*allFlag || c.Variant.Aside {
			continue
		}
		for _, fault := range nemesis.NotSurvived(c.Variant) {
			t.Run(c.Variant.Name+"/"+fault, func(t *testing.T) {
				t.Parallel()
				c.Faults, c.Overstay = []string{fault}, 10
				search(t, c, "Exclusion")
			})
		}
	}
}

// search plays one seed after the other, until one shows that a property is violated.
func search(t *testing.T, c config, property string) {
	t.Helper()
	c.Calm = cmp.Or(c.Calm, time.Second)
	c.For = cmp.Or(c.For, 4*time.Second) + c.Calm
	if c.Variant.Servers > 1 {
		c.Think = slower
	}
	c.Plain = true // so that a mistake shows sooner
	for c.Seed = 1; c.Seed <= seeds; c.Seed++ {
		if r, _ := play(t, c); violates(r, property) {
			t.Logf("%s: seed %d violates %s", c.Variant.Name, c.Seed, property)
			if picture := r.Picture(); !strings.Contains(picture, "✗ ") {
				t.Errorf("the picture marks nothing:\n%s", picture)
			}
			return
		}
	}
	t.Errorf("%d seeds have not shown that %s is violated", seeds, property)
}
