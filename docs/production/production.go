// Package production is the code of docs/production.md: ways to connect to Redis, to be
// copied and changed. Each pool is the caller's to close, after the strategy that uses it.
package production

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

// limits are the time-outs of a connection: of its dial, AUTH and SELECT. What it carries
// then is bounded by strategy.Options.OpTimeout.
var limits = []redis.DialOption{
	redis.DialConnectTimeout(time.Second),
	redis.DialReadTimeout(time.Second),
	redis.DialWriteTimeout(time.Second),
}

func dial(ctx context.Context, network, addr string, options []redis.DialOption) (redis.Conn, error) {
	return redis.DialContext(ctx, network, addr, append(slices.Clip(limits), options...)...)
}

// Pool is a pool of connections to one server: "tcp" and its host:port, or "unix" and the
// path of its socket. The options say who we are, and whether to use TLS.
func Pool(network, addr string, options ...redis.DialOption) *redis.Pool {
	return &redis.Pool{
		DialContext: func(ctx context.Context) (redis.Conn, error) { return dial(ctx, network, addr, options) },
		MaxIdle:     8,
		IdleTimeout: 4 * time.Minute,
	}
}

// TLS are the options of a connection that is encrypted. The server has to show a
// certificate for the host that was dialled, of an authority in the file ca. It is shown the
// certificate in the files cert and key; empty: none. All are PEM.
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
		// Read for each connection, so that a certificate can be renewed while this runs.
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
		return told{conn}, nil
	})}, nil
}

// A told connection tells why it was ended. With TLS 1.3 we write before the server has
// looked at our certificate: if it refuses that, and hangs up, to write fails, and the
// reason is there to be read.
type told struct{ net.Conn }

func (c told) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	var network net.Error
	if err == nil || errors.As(err, &network) && network.Timeout() {
		return n, err
	}
	if _, why := c.Read(make([]byte, 1)); why != nil { // at once: the connection has ended
		err = fmt.Errorf("%w: %w", why, err)
	}
	return n, err
}

// A Sentinel connects to the server that Sentinels name as the master.
type Sentinel struct {
	Addrs  []string           // of the Sentinels, host:port; the nearest first
	Master string             // what they call the master
	Server []redis.DialOption // of connections to a server: user, password, TLS
	Ask    []redis.DialOption // of connections to a Sentinel: the same
}

// Pool is a pool of connections to the master.
func (s Sentinel) Pool() *redis.Pool {
	return &redis.Pool{DialContext: s.Dial, MaxIdle: 8, IdleTimeout: 4 * time.Minute}
}

// Dial connects to the server that the first of the Sentinels names, if that says itself
// that it is a master; else the next is asked. While a fail-over goes on none leads to a
// master, for some seconds: that is an error.
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
	// A Sentinel learns of a fail-over a little later than the servers do.
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
