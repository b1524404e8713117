package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// Two names for one server would give it two votes. It shows when acquire.lua finds this attempt's own
// token, which is fresh and was sent to each node once.

var errTwin = errors.New("the node has this attempt's token already")

// lateTwin returns the error of two nodes that are one server, if that was found after the last attempt
// had ended.
func (p *protocol) lateTwin(ctx context.Context, c driver.Claim) error {
	if i := p.twin.Swap(0); i != 0 {
		return p.twinError(ctx, c, int(i-1))
	}
	return nil
}

// twinError refuses an attempt whose token node i had before it was asked for its vote. It names the
// other node, too, if the servers show their run ids.
func (p *protocol) twinError(ctx context.Context, c driver.Claim, i int) error {
	names, other := p.names(), "another of the nodes"
	ids := p.identities(ctx, p.due(c))
	for j, id := range ids {
		if j != i && id != "" && id == ids[i] {
			other = names[j]
		}
	}
	return &strategy.ServerError{Node: p.nodes[i].Name(), Kind: strategy.ErrRefused,
		Err: fmt.Errorf("%s and %s are one server under two names, which would vote twice: give each server once", names[i], other)}
}

// identities are the servers' run ids, new with each start. Empty: the server does not say.
func (p *protocol) identities(ctx context.Context, due time.Time) []string {
	ids := make([]string, len(p.nodes))
	onAll(p.nodes, func(i int, n driver.Node) {
		reply, _ := n.Do(ctx, due, "INFO", "server")
		text, _ := reply.([]byte)
		for line := range strings.Lines(string(text)) {
			if id, ok := strings.CutPrefix(strings.TrimSpace(line), "run_id:"); ok {
				ids[i] = id
			}
		}
	})
	return ids
}
