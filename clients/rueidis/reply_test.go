// Tests how the Node is called, and what becomes of the client's own errors.
package rueidisnode

import (
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/driver"
)

var errDial = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

func TestNoSlot(t *testing.T) {
	for err, want := range map[error]bool{rueidis.ErrNoSlot: true, io.EOF: false} {
		if got := replyOf(rueidis.NewErrorResult(err)); got.Broken != err || got.NoSlot != want {
			t.Errorf("%v became %+v, want it broken, without a slot: %v", err, got, want)
		}
	}
}

// A listing is a client that knows its servers, and nothing else.
type listing struct {
	rueidis.Client
	mode  rueidis.ClientMode
	addrs []string
}

func (l listing) Mode() rueidis.ClientMode { return l.mode }

func (l listing) Nodes() map[string]rueidis.Client {
	nodes := map[string]rueidis.Client{}
	for _, a := range l.addrs {
		nodes[a] = nil
	}
	return nodes
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		mode  rueidis.ClientMode
		addrs []string
		name  string
	}{
		{rueidis.ClientModeStandalone, []string{"a:1"}, "a:1"},
		{rueidis.ClientModeStandalone, []string{"a:1", "b:1"}, driver.Unnamed},
		{rueidis.ClientModeStandalone, nil, driver.Unnamed},
		{rueidis.ClientModeSentinel, []string{"a:1"}, driver.Unnamed},
		{rueidis.ClientModeCluster, []string{"b:1", "a:1"}, "cluster of a:1"},
		{rueidis.ClientModeCluster, []string{"a:1"}, "cluster of a:1"},
		{rueidis.ClientModeCluster, nil, driver.Unnamed},
	} {
		n := New(listing{mode: c.mode, addrs: c.addrs})
		if n.Name() != c.name || n.Ordered() != (c.mode != rueidis.ClientModeCluster) {
			t.Errorf("%s of %v: Name() = %s, Ordered() = %v, want %s", c.mode, c.addrs, n.Name(), n.Ordered(), c.name)
		}
	}
}
