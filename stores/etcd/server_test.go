// The servers of the tests, and clients of them.
package etcd

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// endpointsVar names the servers, separated by commas.
const endpointsVar = "ETCD_ENDPOINTS"

// endpoints are those of the servers. Without any the test is skipped.
func endpoints(t testing.TB) []string {
	t.Helper()
	list := os.Getenv(endpointsVar)
	if list == "" {
		t.Skip(endpointsVar + " is not set")
	}
	return strings.Split(list, ",")
}

// quiet is for clients: they tell of each request that a test loses.
var quiet = zap.NewNop()

// connect makes a client, and does no I/O.
func connect(endpoints []string, options ...grpc.DialOption) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialOptions: options, Logger: quiet})
}

// clientOf is a client that ends with the test.
func clientOf(t testing.TB, endpoints []string, options ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	c, err := connect(endpoints, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// owning is a strategy that closes its client, too.
type owning struct {
	strategy.Strategy
	client *clientv3.Client
}

func (o owning) Close() error {
	err := o.Strategy.Close()
	o.client.Close()
	return err
}

// open makes a strategy with a client of its own, as another process would have.
func open(o strategy.Options, endpoints []string, options ...grpc.DialOption) (strategy.Strategy, error) {
	c, err := connect(endpoints, options...)
	if err != nil {
		return nil, err
	}
	s, err := New(c, o)
	if err != nil {
		c.Close()
		return nil, err
	}
	return owning{s, c}, nil
}

// leastTTL is the shortest TTL that the servers count.
var leastTTL = sync.OnceValues(func() (time.Duration, error) {
	c, err := connect(strings.Split(os.Getenv(endpointsVar), ","))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	granted, err := c.Grant(ctx, 1)
	if err != nil {
		return 0, err
	}
	return time.Duration(granted.TTL) * time.Second, nil
})

// shortTTL is leastTTL, of servers that answer.
func shortTTL(t testing.TB) time.Duration {
	t.Helper()
	ttl, err := leastTTL()
	if err != nil {
		t.Fatal(err)
	}
	return ttl
}

// strategyOf is a strategy on a client that ends with the test.
func strategyOf(t testing.TB, c *clientv3.Client, o strategy.Options) strategy.Strategy {
	t.Helper()
	s, err := engine.New(On(c), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// etcdVar names the program of which tests start servers of their own.
const etcdVar = "ETCD_BINARY"

// A member is an etcd of a test's own.
type member struct {
	process  *exec.Cmd
	endpoint string
}

// startCluster starts members on loopback addresses, which end with the test. Without the program the test is skipped.
func startCluster(t testing.TB, n int, args ...string) (members []*member, endpoints []string) {
	t.Helper()
	program, err := exec.LookPath(cmp.Or(os.Getenv(etcdVar), "etcd"))
	if err != nil {
		t.Skipf("no etcd to start: %v; %s may name it", err, etcdVar)
	}
	var peers, initial []string
	for i := range n {
		peers = append(peers, "http://"+freeAddr(t))
		endpoints = append(endpoints, freeAddr(t))
		initial = append(initial, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	for i := range n {
		cmd := exec.Command(program, append([]string{
			"--name", fmt.Sprint("m", i), "--data-dir", t.TempDir(),
			"--listen-client-urls", "http://" + endpoints[i], "--advertise-client-urls", "http://" + endpoints[i],
			"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i], "--initial-cluster", strings.Join(initial, ","),
			"--log-level", "error", "--unsafe-no-fsync",
		}, args...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		m := &member{cmd, endpoints[i]}
		t.Cleanup(m.kill)
		members = append(members, m)
	}
	c := clientOf(t, endpoints)
	verdict.Eventually(t, "the servers answer", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Get(ctx, "anything")
		return err == nil
	})
	return members, endpoints
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (m *member) kill() {
	m.process.Process.Kill()
	m.process.Wait()
}

func (m *member) signal(s syscall.Signal) { m.process.Process.Signal(s) }

// leader is the member that leads now.
func leader(t testing.TB, members []*member) (found *member) {
	t.Helper()
	verdict.Eventually(t, "there is a leader", func() bool {
		for _, m := range members {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			s, err := clientOf(t, []string{m.endpoint}).Status(ctx, m.endpoint)
			cancel()
			if err == nil && s.Leader == s.Header.MemberId {
				found = m
			}
		}
		return found != nil
	})
	return found
}
