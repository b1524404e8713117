package rediscnode

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mna/redisc"

	"github.com/lockstrategies/locks/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// limit is how long tests wait for what comes soon: generous, for a busy machine.
const limit = 20 * time.Second

// addrsVar names the nodes of the cluster to a child process.
const addrsVar = "LOCKS_TEST_CLUSTER"

var calm struct {
	sync.Mutex
	cl *redistest.Cluster
}

// cluster is one for all tests whose keys are their own, and which leave all masters alive.
func cluster(t testing.TB) *redistest.Cluster {
	t.Helper()
	calm.Lock()
	defer calm.Unlock()
	if calm.cl == nil {
		cl, err := redistest.ForTests(t).StartCluster(context.Background(), redistest.ClusterConfig{})
		redistest.Must(t, err)
		calm.cl = cl // ends with the farm
	}
	return calm.cl
}

// addrs are where the tests' cluster is found, in a child process, too.
func addrs(t testing.TB) []string {
	t.Helper()
	if told := os.Getenv(addrsVar); told != "" {
		return strings.Split(told, ",")
	}
	return cluster(t).Addrs()
}

// open makes a Node that begins with the addresses; it ends with the test.
func open(t testing.TB, startup ...string) *Node {
	t.Helper()
	n, err := New(&redisc.Cluster{StartupNodes: startup})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func soon() time.Time { return time.Now().Add(limit) }

// must ends the test unless err is nil.
func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// eventually polls until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// key is one in the slot of the test's name.
func key(t testing.TB, suffix ...string) string {
	return "{" + t.Name() + "}" + strings.Join(suffix, "")
}
