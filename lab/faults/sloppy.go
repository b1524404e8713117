package faults

import (
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/broken"
)

// A Sloppy lock makes one mistake. It shows that a play which acquits a strategy would convict it of that.
type Sloppy struct {
	broken.Lock

	trusts func(nodes []driver.Node, struck int) []driver.Node

	blunt  bool // it is convicted without any fault: for plays of which a lock can make nothing worse
	memory bool // its servers keep no file
	cutOff bool // its server's replica hears nothing

	variant string // this one takes the place of the column that it is a variant of
}

// keptInMemory is what most servers are set up for: a cache.
var keptInMemory = Sloppy{Lock: broken.Lock{Name: "is kept in memory alone"}, memory: true}

// waitsForNoReplica lets a server die when its replica has not heard of the lock.
var waitsForNoReplica = Sloppy{Lock: broken.Lock{Name: "outruns its replica"}, cutOff: true}

// votesAtOnce does not ask a server whether it may have forgotten something.
var votesAtOnce = Sloppy{Lock: broken.Lock{Name: "lets every server vote at once"}, variant: "redlock-unguarded"}

// trustsOneServer does not ask the others.
var trustsOneServer = Sloppy{Lock: broken.Lock{Name: "trusts one server"}, trusts: func(nodes []driver.Node, struck int) []driver.Node {
	return nodes[struck : struck+1]
}}

// grantsWhatIsHeld and releasesNothing need no fault.
var (
	grantsWhatIsHeld = Sloppy{Lock: broken.GrantsWhatIsHeld, blunt: true}
	releasesNothing  = Sloppy{Lock: broken.ReleasesNothing, blunt: true}
)
