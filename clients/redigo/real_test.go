// The node on a real server whose connections end at rest, within TLS.
package redigonode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
)

// Where Redis closes a connection at rest, that is seen before anything is written to it, also within TLS.
func TestPeekWithinTLS(t *testing.T) {
	t.Parallel()
	a, err := redistest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	srv, addr := redistest.OwnTLS(t, a, redistest.Config{})
	pem, key, err := a.Issue("client", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(pem, key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}}
	config.RootCAs.AppendCertsFromPEM(a.PEM)
	n := newNode(t, &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", addr, redis.DialUseTLS(true), redis.DialTLSConfig(config))
	}})
	for range 5 {
		echo(t, n, "here")
		var w *wire
		locked(n, func(p *pipe) { w = p.wire })
		redistest.Do(t, srv, "CLIENT", "KILL", "TYPE", "normal")
		verdict.Eventually(t, "the end is here", w.peeker.readable)
		echo(t, n, "here again")
	}
}
