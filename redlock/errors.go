package redlock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/strategy"
)

// refusal says why no quorum agreed.
func (p *protocol) refusal(c driver.Claim, count *voteCount) error {
	if count.lost > len(p.nodes)-p.quorum {
		return &strategy.LostError{Name: c.Name, Holder: count.holder()}
	}
	e := &strategy.QuorumError{Name: c.Name, Need: p.quorum, Nodes: p.answers(c, count)}
	if count.yes+count.held >= p.quorum {
		e.Held = count.heldError(c.Name)
	}
	return e
}

var errNotThere = errors.New("the lock is not there: this server did not grant it, or it is gone")

// answers is what each node said, for a QuorumError.
func (p *protocol) answers(c driver.Claim, count *voteCount) []strategy.NodeAnswer {
	names := p.names()
	answers := make([]strategy.NodeAnswer, len(names))
	for i, err := range count.errs {
		if err == errAbsent {
			err = &strategy.LostError{Name: c.Name, Err: errNotThere}
		}
		answers[i] = strategy.NodeAnswer{Node: names[i], Err: err}
	}
	return answers
}

// markUnknown corrects an error of too few nodes. A node of some that agreed, or for whose answer nobody
// waited, may have changed something. The caller has to know that: an error that has only the "not sent"
// of the other nodes would mean that nothing has changed.
func (p *protocol) markUnknown(err error, some []int, what string) error {
	var none *strategy.QuorumError
	if errors.As(err, &none) {
		for _, i := range some {
			if e := none.Nodes[i].Err; e == nil || e == errPending {
				none.Nodes[i].Err = &strategy.ServerError{Node: p.nodes[i].Name(), Kind: strategy.ErrUnknown, Err: errors.New(what)}
			}
		}
	}
	return err
}

// errCluster is why no node of a Redis Cluster can vote: the keys of one vote lie in several slots
// there, and the nodes of a cluster do not fail independently.
var errCluster = errors.New("it belongs to a Redis Cluster: RedLock takes servers that know nothing of each other")

// ofCluster adds errCluster to the refusal of a node of a cluster.
func ofCluster(err error) error {
	if err == nil {
		return nil // before there is anything to allocate: it is asked of every answer
	}
	var said *strategy.ServerError
	if !errors.As(err, &said) || said.Kind != strategy.ErrRefused || said.Err == nil {
		return err
	}
	if rediskit.SeveralSlots(err) || strings.HasPrefix(said.Err.Error(), "MOVED ") {
		return &strategy.ServerError{Node: said.Node, Kind: said.Kind, Err: fmt.Errorf("%w: %w", errCluster, said.Err)}
	}
	return err
}

// names are the nodes' names in errors: the address, once it is known, and the node's number where
// two names would be alike.
func (p *protocol) names() []string {
	names, times := make([]string, len(p.nodes)), map[string]int{}
	for i, n := range p.nodes {
		names[i] = n.Name()
		times[names[i]]++
	}
	for i, name := range names {
		switch {
		case name == driver.Unnamed:
			names[i] = fmt.Sprintf("node %d", i+1)
		case times[name] > 1:
			names[i] = fmt.Sprintf("node %d (%s)", i+1, name)
		}
	}
	return names
}

// named puts a node's name before its error, unless the error has it.
func named(name string, err error) error {
	if strings.HasPrefix(err.Error(), name+": ") {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}
