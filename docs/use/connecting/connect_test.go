package connecting

// Locks over TLS, Unix sockets and Sentinels, and what is said when the connection is wrong.

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/strategy"
)

// smoke holds what every lock must do, and what needs a subscription, on one strategy of
// scripts, which go over one connection for all, and one of transactions, each on a connection
// of the pool. The others connect alike.
func smoke(t *testing.T, pool *redis.Pool) {
	t.Helper()
	for _, v := range subjects.All() {
		if v.Name != "fairqueue" && v.Name != "setnxgetset-watch" {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			s, held := v.SubjectOn([]*redis.Pool{pool}), 0
			for _, p := range conformance.Properties() {
				switch p.Name {
				case "Exclusive", "ReleaseFrees", "ExtendRestarts", "WokenByRelease", "WokenByNotification", "NoGhost", "LeavesNothing":
					held++
				default:
					continue
				}
				t.Run(p.Name, func(t *testing.T) {
					t.Parallel()
					if r := conformance.Check(t.Context(), s, p); r.Status != conformance.Kept && r.Status != conformance.Skipped {
						t.Error(r)
					}
				})
			}
			if held != 7 {
				t.Errorf("%d properties are there, want 7: the suite has other names for them", held)
			}
		})
	}
}

func authority(t *testing.T) *redistest.Authority {
	t.Helper()
	a, err := redistest.NewAuthority()
	redistest.Must(t, err)
	return a
}

// files are in PEM: an authority, and a certificate that it or another has issued.
type files struct{ ca, cert, key string }

func issued(t *testing.T, trusted, issuer *redistest.Authority, ends time.Time) files {
	t.Helper()
	cert, key, err := issuer.Issue("client", ends)
	redistest.Must(t, err)
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		redistest.Must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	return files{write("ca.pem", trusted.PEM), write("cert.pem", cert), write("key.pem", key)}
}

// options are those of TLS, and more.
func (f files) options(t *testing.T, more ...redis.DialOption) []redis.DialOption {
	t.Helper()
	o, err := TLS(f.ca, f.cert, f.key)
	redistest.Must(t, err)
	return append(o, more...)
}

// unsent checks that nobody gets a lock over the pool, and that the error says why, in one of these words.
func unsent(t *testing.T, pool *redis.Pool, why ...string) {
	t.Helper()
	locks, err := fairqueue.New(redigonode.New(pooled(t, pool)), strategy.Options{TTL: time.Minute, OpTimeout: 10 * time.Second})
	redistest.Must(t, err)
	defer locks.Close()
	_, err = locks.NewLock("a").TryAcquire(t.Context())
	says := func(words string) bool { return strings.Contains(err.Error(), words) }
	if !isUnsent(err) || isUnknown(err) || !slices.ContainsFunc(why, says) {
		t.Errorf("TryAcquire() = %v, want ErrUnsent, and one of %q in it", err, why)
	}
}

// TestTLS: locks over TLS with a client certificate, and what is said when that is wrong.
func TestTLS(t *testing.T) {
	t.Parallel()
	ours, others := authority(t), authority(t)
	s, addr := redistest.OwnTLS(t, ours, redistest.Config{User: "app", Password: "secret"})
	_, port, err := net.SplitHostPort(addr)
	redistest.Must(t, err)
	name, secret := redis.DialUsername("app"), redis.DialPassword("secret")
	good := issued(t, ours, ours, time.Time{})
	bare := files{ca: good.ca}
	with := func(f files) *redis.Pool { return Pool("tcp", addr, f.options(t, name, secret)...) }

	t.Run("conformance", func(t *testing.T) { smoke(t, pooled(t, with(good))) })
	for what, c := range map[string]struct {
		pool *redis.Pool
		why  []string
	}{
		"a certificate of others":       {with(issued(t, ours, others, time.Time{})), []string{"unknown certificate authority", "bad certificate"}},
		"a certificate that has ended":  {with(issued(t, ours, ours, time.Now().Add(-time.Hour))), []string{"expired certificate"}},
		"a server of others":            {with(issued(t, others, ours, time.Time{})), []string{"certificate signed by unknown authority"}},
		"a server of another name":      {Pool("tcp", "127.0.0.2:"+port, good.options(t)...), []string{"not 127.0.0.2", "connection refused"}},
		"TLS where the server has none": {Pool("tcp", s.Addr(), good.options(t)...), []string{"tls: ", "timeout", "deadline", "EOF"}},
		"none where the server has TLS": {Pool("tcp", addr, name, secret), []string{"EOF", "connection reset", "invalid", "unexpected"}},
		"a wrong password":              {Pool("tcp", addr, good.options(t, name, redis.DialPassword("s3cr3t"))...), []string{"WRONGPASS"}},
	} {
		t.Run(what, func(t *testing.T) { unsent(t, c.pool, c.why...) })
	}
	t.Run("no client certificate", func(t *testing.T) {
		for range 20 { // the server's word comes after the dial, and must not be lost
			unsent(t, with(bare), "certificate required", "handshake failure")
			unsent(t, Pool("tcp", addr, bare.options(t)...), "certificate required", "handshake failure") // without AUTH
		}
	})
	t.Run("renewed while connected", func(t *testing.T) {
		pool, renewed := pooled(t, with(good)), issued(t, ours, others, time.Time{})
		redistest.Must(t, errors.Join(os.Rename(renewed.cert, good.cert), os.Rename(renewed.key, good.key)))
		unsent(t, pool, "unknown certificate authority", "bad certificate") // each dial reads the files
	})
}

// TestBadFiles: what cannot be read is said before anything is dialled.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	a := authority(t)
	good := issued(t, a, a, time.Time{})
	for _, c := range []struct {
		files
		want string
	}{
		{files{"/nowhere.pem", good.cert, good.key}, "/nowhere.pem"},
		{files{good.key, good.cert, good.key}, "no certificate in PEM"},
		{files{good.ca, "/nowhere.pem", good.key}, "/nowhere.pem"},
		{files{good.ca, good.cert, good.ca}, "private key"},
	} {
		if _, err := TLS(c.ca, c.cert, c.key); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("TLS of %+v = %v, want an error with %q", c.files, err, c.want)
		}
	}
}

// TestSocket: locks over a Unix socket, whatever its path, and what is said when there is none.
func TestSocket(t *testing.T) {
	t.Parallel()
	s, path := redistest.OwnSocket(t, "redis of ours.sock", redistest.Config{})
	t.Run("conformance", func(t *testing.T) { smoke(t, pooled(t, Pool("unix", path))) })
	unsent(t, Pool("unix", path+".not"), "no such file")
	locks, err := fairqueue.New(redigonode.New(pooled(t, Pool("unix", path))), strategy.Options{})
	redistest.Must(t, err)
	defer locks.Close()
	redistest.Must(t, locks.Check(t.Context()))
	redistest.Must(t, s.Kill(t.Context()))
	unsent(t, Pool("unix", path), "connection refused")
}

// TestSentinelErrors: what Dial says when no Sentinel leads to a master.
func TestSentinelErrors(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1"
	says := func(reply string) string {
		return nodetest.NewServer(t, func(c *nodetest.Conn, _ []string) { c.Say("%s", reply) }).Addr
	}
	names := func(addr string) string { // a Sentinel that names this master
		host, port, err := net.SplitHostPort(addr)
		redistest.Must(t, err)
		return nodetest.NewServer(t, func(c *nodetest.Conn, _ []string) {
			c.Say("*2\r\n")
			c.Bulk(host)
			c.Bulk(port)
		}).Addr
	}
	noSentinel := says("-ERR unknown command 'SENTINEL'\r\n")
	for _, c := range []struct {
		addrs, want []string
	}{
		{nil, []string{"no Sentinel leads to a master"}},
		{[]string{nobody, noSentinel}, []string{"locks at Sentinel " + nobody, "refused", "unknown command"}},
		{[]string{says("*-1\r\n")}, []string{"it knows no master of that name"}},
		{[]string{says("*1\r\n$1\r\na\r\n")}, []string{"not host and port"}},
		{[]string{names(nobody)}, []string{nobody, "refused"}},
		{[]string{names(says("*1\r\n$5\r\nslave\r\n"))}, []string{"it is no master"}},
		{[]string{names(says("*0\r\n"))}, []string{"it is no master"}},
		{[]string{names(says("-NOPERM no ROLE\r\n"))}, []string{"NOPERM no ROLE"}},
	} {
		_, err := Sentinel{Master: "locks", Addrs: c.addrs}.Dial(t.Context())
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Dial by %v = %v, want %q in it", c.addrs, err, want)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Sentinel{Addrs: []string{noSentinel}}).Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial = %v, want the context's error", err)
	}
	// The next Sentinel is asked.
	c, err := Sentinel{Master: "locks", Addrs: []string{nobody, names(says("*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"))}}.Dial(t.Context())
	redistest.Must(t, err)
	c.Close()
}
