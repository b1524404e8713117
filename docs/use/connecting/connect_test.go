package connecting

// Locks over TLS, Unix sockets and Sentinels, and what is said when the connection is wrong.

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// smoke holds what every lock must do, and what needs a subscription, on one strategy of
// scripts, which go over one connection for all, and one of transactions, each on a connection
// of the pool. The others connect alike.
func smoke(t *testing.T, pool *redis.Pool) {
	t.Helper()
	for _, v := range oneServer() {
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

// files writes PEM files, and returns their paths.
func files(t *testing.T, contents ...[]byte) []string {
	t.Helper()
	dir, paths := t.TempDir(), []string(nil)
	for i, b := range contents {
		paths = append(paths, filepath.Join(dir, string(rune('a'+i))+".pem"))
		if err := os.WriteFile(paths[i], b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

func authority(t *testing.T) *redistest.Authority {
	t.Helper()
	a, err := redistest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// issued are the files of an authority's certificate, and of one that it has issued.
func issued(t *testing.T, trusted, issuer *redistest.Authority, ends time.Time) (ca, cert, key string) {
	t.Helper()
	c, k, err := issuer.Issue("client", ends)
	if err != nil {
		t.Fatal(err)
	}
	p := files(t, trusted.PEM, c, k)
	return p[0], p[1], p[2]
}

func options(t *testing.T, ca, cert, key string) []redis.DialOption {
	t.Helper()
	o, err := TLS(ca, cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// unsent checks that nobody gets a lock over the pool, and that the error says why.
func unsent(t *testing.T, pool *redis.Pool, why ...string) {
	t.Helper()
	locks, err := fairqueue.New(redigonode.New(pooled(t, pool)), strategy.Options{TTL: time.Minute, OpTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	_, err = locks.NewLock("a").TryAcquire(t.Context())
	if !isUnsent(err) || isUnknown(err) {
		t.Errorf("TryAcquire() = %v, want ErrUnsent", err)
		return
	}
	for _, w := range why {
		if strings.Contains(err.Error(), w) {
			return
		}
	}
	t.Errorf("TryAcquire() = %v, want one of %q in it", err, why)
}

// TestTLS: locks over TLS with a client certificate, and what is said when that is wrong.
func TestTLS(t *testing.T) {
	t.Parallel()
	ours, others := authority(t), authority(t)
	s, addr := redistest.OwnTLS(t, ours, redistest.Config{User: "app", Password: "secret"})
	user := []redis.DialOption{redis.DialUsername("app"), redis.DialPassword("secret")}
	connect := func(tls []redis.DialOption) *redis.Pool { return Pool("tcp", addr, append(tls, user...)...) }
	ca, cert, key := issued(t, ours, ours, time.Time{})

	t.Run("conformance", func(t *testing.T) { smoke(t, pooled(t, connect(options(t, ca, cert, key)))) })
	t.Run("no client certificate", func(t *testing.T) {
		for range 20 { // the server's word comes after the dial, and must not be lost
			unsent(t, connect(options(t, ca, "", "")), "certificate required", "handshake failure")
			unsent(t, Pool("tcp", addr, options(t, ca, "", "")...), "certificate required", "handshake failure") // without AUTH
		}
	})
	t.Run("a certificate of others", func(t *testing.T) {
		_, cert, key := issued(t, ours, others, time.Time{})
		unsent(t, connect(options(t, ca, cert, key)), "unknown certificate authority", "bad certificate")
	})
	t.Run("a certificate that has ended", func(t *testing.T) {
		_, cert, key := issued(t, ours, ours, time.Now().Add(-time.Hour))
		unsent(t, connect(options(t, ca, cert, key)), "expired certificate")
	})
	t.Run("a server of others", func(t *testing.T) {
		ca, cert, key := issued(t, others, ours, time.Time{})
		unsent(t, connect(options(t, ca, cert, key)), "certificate signed by unknown authority")
	})
	t.Run("a server of another name", func(t *testing.T) {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		unsent(t, Pool("tcp", "127.0.0.2:"+port, options(t, ca, cert, key)...), "not 127.0.0.2", "connection refused")
	})
	t.Run("TLS where the server has none", func(t *testing.T) {
		unsent(t, Pool("tcp", s.Addr(), options(t, ca, cert, key)...), "tls: ", "timeout", "deadline", "EOF")
	})
	t.Run("none where the server has TLS", func(t *testing.T) {
		unsent(t, Pool("tcp", addr, user...), "EOF", "connection reset", "invalid", "unexpected")
	})
	t.Run("a wrong password", func(t *testing.T) {
		unsent(t, Pool("tcp", addr, append(options(t, ca, cert, key), redis.DialUsername("app"), redis.DialPassword("s3cr3t"))...), "WRONGPASS")
	})
	t.Run("renewed while connected", func(t *testing.T) {
		_, newCert, newKey := issued(t, ours, others, time.Time{})
		pool := pooled(t, connect(options(t, ca, cert, key)))
		copyFile(t, cert, newCert)
		copyFile(t, key, newKey)
		unsent(t, pool, "unknown certificate authority", "bad certificate") // each dial reads the files
	})
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestBadFiles: what cannot be read is said before anything is dialled.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	a := authority(t)
	ca, cert, key := issued(t, a, a, time.Time{})
	for _, c := range []struct{ ca, cert, key, want string }{
		{"/nowhere.pem", cert, key, "/nowhere.pem"},
		{key, cert, key, "no certificate in PEM"},
		{ca, "/nowhere.pem", key, "/nowhere.pem"},
		{ca, cert, ca, "private key"},
	} {
		if _, err := TLS(c.ca, c.cert, c.key); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("TLS(%s, %s, %s) = %v, want an error with %q", c.ca, c.cert, c.key, err, c.want)
		}
	}
}

// TestSocket: locks over a Unix socket, whatever its path, and what is said when there is none.
func TestSocket(t *testing.T) {
	t.Parallel()
	s, path := redistest.OwnSocket(t, "redis of ours.sock", redistest.Config{})
	t.Run("conformance", func(t *testing.T) { smoke(t, pooled(t, Pool("unix", path))) })
	unsent(t, Pool("unix", path+".not"), "no such file")
	pool := Pool("unix", path)
	locks, err := fairqueue.New(redigonode.New(pooled(t, pool)), strategy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if err := locks.Check(t.Context()); err != nil {
		t.Errorf("Check() = %v, want nil", err)
	}
	if err := s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	unsent(t, Pool("unix", path), "connection refused")
}

// TestSentinelErrors: what Dial says when no Sentinel leads to a master.
func TestSentinelErrors(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1"
	noSentinel := answering(t, "-ERR unknown command 'SENTINEL'\r\n")
	master := answering(t, "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n")
	for _, c := range []struct {
		sentinel Sentinel
		want     []string
	}{
		{Sentinel{Master: "locks"}, []string{"no Sentinel leads to a master"}},
		{Sentinel{Master: "locks", Addrs: []string{nobody, noSentinel}}, []string{"locks at Sentinel " + nobody, "refused", "unknown command"}},
		{Sentinel{Master: "locks", Addrs: []string{answering(t, "*-1\r\n")}}, []string{"it knows no master of that name"}},
		{Sentinel{Master: "locks", Addrs: []string{answering(t, "*1\r\n$1\r\na\r\n")}}, []string{"not host and port"}},
		{Sentinel{Master: "locks", Addrs: []string{answering(t, "*2\r\n$9\r\n127.0.0.1\r\n$1\r\n1\r\n")}}, []string{nobody, "refused"}},
		{Sentinel{Master: "locks", Addrs: []string{answering(t, naming(t, answering(t, "*1\r\n$5\r\nslave\r\n")))}}, []string{"it is no master"}},
		{Sentinel{Master: "locks", Addrs: []string{answering(t, naming(t, answering(t, "*0\r\n")))}}, []string{"it is no master"}},
		{Sentinel{Master: "locks", Addrs: []string{answering(t, naming(t, answering(t, "-NOPERM no ROLE\r\n")))}}, []string{"NOPERM no ROLE"}},
	} {
		_, err := c.sentinel.Dial(t.Context())
		if err == nil {
			t.Errorf("Dial by %v = nil, want an error with %q", c.sentinel.Addrs, c.want)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("Dial by %v = %v, want %q in it", c.sentinel.Addrs, err, w)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Sentinel{Addrs: []string{noSentinel}}).Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial = %v, want the context's error", err)
	}
	// The next Sentinel is asked.
	good := Sentinel{Master: "locks", Addrs: []string{nobody, answering(t, naming(t, master))}}
	c, err := good.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// naming is a Sentinel's answer.
func naming(t *testing.T, addr string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return "*2\r\n$" + size(host) + "\r\n" + host + "\r\n$" + size(port) + "\r\n" + port + "\r\n"
}

func size(s string) string { return string(rune('0'+len(s)/10)) + string(rune('0'+len(s)%10)) }

// answering listens on an address, and says the same to whatever is asked.
func answering(t *testing.T, text string) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for buf := make([]byte, 1024); ; {
					if _, err := c.Read(buf); err != nil {
						return
					}
					if _, err := c.Write([]byte(text)); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}
