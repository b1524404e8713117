// Package connecting is the code of docs/use/connecting.md: how a program with redigo connects. Copy it
// and change it. The caller closes each pool, after the strategy that uses it. The folder service has a
// whole program.
package connecting

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"
)

// limits bound the dial, AUTH and SELECT. strategy.Options.OpTimeout bounds every later request.
var limits = []redis.DialOption{
	redis.DialConnectTimeout(time.Second),
	redis.DialReadTimeout(time.Second),
	redis.DialWriteTimeout(time.Second),
}

func dial(ctx context.Context, network, addr string, options []redis.DialOption) (redis.Conn, error) {
	return redis.DialContext(ctx, network, addr, append(slices.Clip(limits), options...)...)
}

// Pool connects to one server: "tcp" and its host:port, or "unix" and the path of its socket. The
// options name the user and the password, and say whether to use TLS.
func Pool(network, addr string, options ...redis.DialOption) *redis.Pool {
	return &redis.Pool{
		DialContext: func(ctx context.Context) (redis.Conn, error) { return dial(ctx, network, addr, options) },
		MaxIdle:     8,
		IdleTimeout: 4 * time.Minute,
	}
}

// TLS returns the options of an encrypted connection. An authority in the file ca must have issued
// the server's certificate, for the host that the program dials. The files cert and key hold the
// program's own certificate; empty: it has none. All files are PEM.
func TLS(ca, cert, key string) ([]redis.DialOption, error) {
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", ca)
	}
	if cert != "" {
		// Each connection reads the files again, so an operator can renew them while the program runs.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
		if _, err := c.GetClientCertificate(nil); err != nil {
			return nil, err
		}
	}
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: time.Second}, Config: c}
	return []redis.DialOption{redis.DialContextFunc(func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return explaining{conn}, nil
	})}, nil
}

// An explaining connection adds the server's reason to a failed write. With TLS 1.3 the client writes
// before the server has looked at its certificate. A server that refuses it sends the reason and hangs
// up: the write fails, and the next read returns the reason.
type explaining struct{ net.Conn }

func (c explaining) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	var network net.Error
	if err == nil || errors.As(err, &network) && network.Timeout() {
		return n, err
	}
	if _, why := c.Read(make([]byte, 1)); why != nil { // it returns at once: the connection has ended
		err = fmt.Errorf("%w: %w", why, err)
	}
	return n, err
}

// A Sentinel connects to the server that Sentinels name as the master.
type Sentinel struct {
	Addrs  []string           // the Sentinels' host:port; the nearest first
	Master string             // the name that they use for the master
	Server []redis.DialOption // for connections to a server: user, password, TLS
	Ask    []redis.DialOption // for connections to a Sentinel: the same
}

// Pool connects to the master.
func (s Sentinel) Pool() *redis.Pool {
	return &redis.Pool{DialContext: s.Dial, MaxIdle: 8, IdleTimeout: 4 * time.Minute}
}

// Dial asks the Sentinels in turn for the master's address, and connects to the first address whose
// server says that it is a master. During a fail-over no Sentinel leads to a master for some seconds:
// then Dial returns an error.
func (s Sentinel) Dial(ctx context.Context) (redis.Conn, error) {
	errs := []error{errors.New("no Sentinel leads to a master")}
	for _, addr := range s.Addrs {
		c, err := s.by(ctx, addr)
		if err == nil {
			return c, nil
		}
		errs = append(errs, fmt.Errorf("%s at Sentinel %s: %w", s.Master, addr, err))
	}
	return nil, errors.Join(errs...)
}

func (s Sentinel) by(ctx context.Context, addr string) (redis.Conn, error) {
	sentinel, err := dial(ctx, "tcp", addr, s.Ask)
	if err != nil {
		return nil, err
	}
	defer sentinel.Close()
	at, err := redis.Strings(redis.DoContext(sentinel, ctx, "SENTINEL", "get-master-addr-by-name", s.Master))
	switch {
	case errors.Is(err, redis.ErrNil):
		return nil, errors.New("it knows no master of that name")
	case err != nil:
		return nil, err
	case len(at) != 2:
		return nil, fmt.Errorf("it answers %q, not host and port", at)
	}
	master := net.JoinHostPort(at[0], at[1])
	c, err := dial(ctx, "tcp", master, s.Server)
	if err != nil {
		return nil, err
	}
	// A Sentinel notices a fail-over a little later than the servers do.
	role, err := redis.Values(redis.DoContext(c, ctx, "ROLE"))
	if err == nil && (len(role) == 0 || fmt.Sprintf("%s", role[0]) != "master") {
		err = errors.New("it is no master")
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", master, err)
	}
	return c, nil
}
