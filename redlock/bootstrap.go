package redlock

import (
	"context"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
)

// Bootstrap lets the servers of a new cluster vote at once. Call it once, at installation; never at
// application start. An empty server cannot be told from one that lost its data, so without
// Bootstrap no server votes until [WithMaxTTL] has passed; an application that called it at each start
// would give a vote to a server that has just forgotten its locks.
//
// The caller vouches for each server that does not vote yet: it has forgotten no lock that may be
// held, and has lost no fence that a store remembers. On a server that votes already,
// Bootstrap changes nothing. Locks that are there stay.
//
// Each server is asked for 10 s at most, in the database that its client selects. Bootstrap closes no node. The error
// names the servers that may not vote; the others do. Then call it again. Call it again, too, if a server
// that had waited for its vote waits once more, because a client with a longer TTL came.
func Bootstrap(ctx context.Context, nodes []driver.Node) error {
	p := &protocol{nodes: nodes, fault: faultOf(nodes)}
	if p.fault != nil {
		return p.fault
	}
	due := time.Now().Add(10 * time.Second)
	return p.each(func(n driver.Node) error {
		reply, err := n.Eval(ctx, due, bootstrap, []string{GuardKey})
		if _, ok := reply.(int64); !ok && err == nil {
			err = rediskit.BadReply(n.Name(), reply)
		}
		return err
	})
}
