package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/machine"
)

// EtcdEnv is the environment variable that names the members of a cluster, separated by commas.
const EtcdEnv = "ETCD_ENDPOINTS"

// etcd before 3.5.13 may end leases that were renewed, after a leader was paused: bookworm's is older.
var etcd = product{
	name: "etcd", image: "quay.io/coreos/etcd:v3.5.16",
	pkg: machine.Package{Name: "etcd-server", Suite: "trixie", Program: "usr/bin/etcd"},
	idle: []string{
		"etcd", "--data-dir", "idle", "--initial-cluster", "default=http://127.0.0.1:0",
		"--listen-client-urls", "http://127.0.0.1:0", "--advertise-client-urls", "http://127.0.0.1:0",
		"--listen-peer-urls", "http://127.0.0.1:0", "--initial-advertise-peer-urls", "http://127.0.0.1:0",
	},
}

// EtcdEndpoints are a cluster for all tests of the process, of one member unless ETCD_ENDPOINTS names more.
func EtcdEndpoints(t testing.TB) []string {
	t.Helper()
	f := ForTests(t)
	lists, err := f.share(t.Context(), "etcd", EtcdEnv, func(ctx context.Context) ([]*Server, []string, error) {
		s, err := f.StartEtcd(ctx, 1)
		if err != nil {
			return nil, nil, err
		}
		return s, []string{s[0].Addr}, nil
	})
	f.must(t, err)
	return strings.Split(lists[0], ",")
}

// OwnEtcd is a cluster of n members for this test alone, to break. It ends with the test.
func OwnEtcd(t testing.TB, n int, args ...string) []*Server {
	t.Helper()
	return OwnEtcdBehind(t, n, func(addr string) (string, error) { return addr, nil }, args...)
}

// OwnEtcdBehind is OwnEtcd with something between the members: see [Farm.StartEtcdBehind].
func OwnEtcdBehind(t testing.TB, n int, proxy func(addr string) (string, error), args ...string) []*Server {
	t.Helper()
	f := ForTests(t)
	members, err := f.StartEtcdBehind(t.Context(), n, proxy, args...)
	f.must(t, err)
	endWith(t, members...)
	return members
}

// StartEtcd starts a cluster of n members, with more arguments, and waits until each answers.
func (f *Farm) StartEtcd(ctx context.Context, n int, args ...string) (members []*Server, err error) {
	return f.StartEtcdBehind(ctx, n, func(addr string) (string, error) { return addr, nil }, args...)
}

// StartEtcdBehind is StartEtcd with something between the members: proxy makes, of the address at which a member listens to
// the others, the one that these get.
func (f *Farm) StartEtcdBehind(ctx context.Context, n int, proxy func(addr string) (string, error), args ...string) (members []*Server, err error) {
	from, err := f.source(ctx, etcd)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, m := range members {
				err = errors.Join(err, m.Stop(context.WithoutCancel(ctx)))
			}
			members, err = nil, fmt.Errorf("etcd: %w", err)
		}
	}()
	var listen, peers, initial []string
	for i := range n {
		m, ports, err := f.prepare(2, etcdAnswers)
		if err != nil {
			return members, err
		}
		members = append(members, m)
		addr := fmt.Sprintf("%s:%d", machine.Loopback, ports[1])
		peer, err := proxy(addr)
		if err != nil {
			return members, err
		}
		listen, peers = append(listen, "http://"+addr), append(peers, "http://"+peer)
		initial = append(initial, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	for i, m := range members {
		url := "http://" + m.Addr
		m.running, err = from.start(ctx, m.dir, "etcd", slices.Concat([]string{
			"--name", fmt.Sprint("m", i), "--data-dir", "data", "--listen-client-urls", url, "--advertise-client-urls", url,
			"--listen-peer-urls", listen[i], "--initial-advertise-peer-urls", peers[i], "--initial-cluster", strings.Join(initial, ","),
			"--log-level", "error", "--unsafe-no-fsync",
		}, args))
		if err != nil {
			return members, err
		}
	}
	for _, m := range members {
		if err := m.Ready(ctx); err != nil {
			return members, err
		}
	}
	return members, nil
}

// etcdAnswers asks whether a majority serves.
func etcdAnswers(ctx context.Context, addr string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/health", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var said struct{ Health string }
	return json.NewDecoder(resp.Body).Decode(&said) == nil && said.Health == "true"
}
