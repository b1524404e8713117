// What rueidis adds to the suite on a cluster: routing, TRYAGAIN, a frozen master, where it listens.
package rueidisnode

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/clients/internal/lending"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/clienttest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

func clusterClient(t testing.TB, addrs []string) rueidis.Client {
	t.Helper()
	return clusterClientOf(t, rueidis.ClientOption{InitAddress: addrs})
}

func clusterClientOf(t testing.TB, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	o = small(o)
	o.ForceSingleClient, o.PipelineMultiplex = false, 0 // the client's default: one connection to each master
	client, err := rueidis.NewClient(o)
	redistest.Must(t, err)
	t.Cleanup(client.Close)
	if client.Mode() != rueidis.ClientModeCluster {
		t.Fatalf("Mode() = %s, want a cluster's", client.Mode())
	}
	return client
}

func clusterNode(t testing.TB, addrs []string) *lending.Node {
	t.Helper()
	n := New(clusterClient(t, addrs)).(*lending.Node)
	t.Cleanup(func() { n.Close() })
	return n
}

func TestClusterKeepsNoOrderAndSaysSo(t *testing.T) {
	cl := clienttest.Cluster(t)
	for _, srv := range cl.Servers() {
		redistest.Do(t, srv, "CONFIG", "RESETSTAT")
	}
	n := clusterNode(t, cl.Addrs())
	if n.Ordered() || !strings.HasPrefix(n.Name(), "cluster of ") {
		t.Errorf("Ordered() = %v before the first request, Name() = %s, want false, and a cluster's", n.Ordered(), n.Name())
	}
	// Every key is found at once: nobody has to say that it has moved. A command without a key goes to any server.
	for i := range 50 {
		key := fmt.Sprint("k", i)
		_, err := n.Do(t.Context(), soon(), "SET", key, key)
		redistest.Must(t, err)
		redistest.Must(t, n.Session(t.Context(), soon(), key, func(c driver.Conn) error {
			reply, err := c.Do("GET", key)
			if fmt.Sprintf("%s", reply) != key {
				t.Errorf("GET %s in a session = %s, %v", key, reply, err)
			}
			return err
		}))
	}
	for _, srv := range cl.Servers() {
		if said := fmt.Sprintf("%s", redistest.Do(t, srv, "INFO", "errorstats")); strings.Contains(said, "MOVED") {
			t.Errorf("%s has said MOVED: %s", srv.Addr(), said)
		}
	}
	echo(t, n, "anybody")
	// Keys of several slots are refused, not a panic.
	_, err := n.Eval(t.Context(), soon(), driver.NewScript("two", "return 1"), []string{"a", "b", "c"})
	want(t, "keys of several slots", err, strategy.ErrRefused)
	if !strings.Contains(fmt.Sprint(err), "CROSSSLOT") {
		t.Errorf("Eval = %v, want the server's words", err)
	}
}

func TestClusterSubscriptionFollows(t *testing.T) {
	n := clusterNode(t, clienttest.Cluster(t).Addrs())
	n.Sub.PingEvery = 50 * time.Millisecond
	clienttest.SubscriptionFollows(t, n)
}
