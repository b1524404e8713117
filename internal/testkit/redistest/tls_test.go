package redistest

// Servers behind TLS and Unix sockets, and the certificates for them.

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// TestLocalFiles: they are there when the server starts, on this machine and for Files, and so
// is what the server makes of them; a socket is no such file.
func TestLocalFiles(t *testing.T) {
	eachKind(t, func(t *testing.T, f *Farm) {
		c := Config{Files: map[string][]byte{"a": []byte("1")}, Args: []string{"--unixsocket", "b b", "--unixsocketperm", "777"}}
		s := start(t, f, c)
		path := filepath.Join(s.Dir(), "b b")
		conn, err := redis.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Do("PING"); err != nil {
			t.Errorf("PING by the socket = %v", err)
		}
		files, err := s.Files(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if string(files["a"]) != "1" || files["b b"] != nil {
			t.Errorf("files = %q, want a, and no socket", files)
		}
		if plain := start(t, f, Config{}); plain.Dir() != "" {
			t.Errorf("Dir of a server without files = %q, want none", plain.Dir())
		}
		dir := s.Dir()
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("after Stop: Stat(%s) = %v, want that there is none", dir, err)
		}
	})
}

func TestBadFiles(t *testing.T) {
	f := open(t, Embedded)
	for want, c := range map[string]Config{
		"without a directory": {Files: map[string][]byte{"../a": nil}},
		"one of Config.Files": {Files: map[string][]byte{"a": nil}, Sentinel: "b"},
	} {
		if _, err := f.Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start(%v) = %v, want an error with %q", c, err, want)
		}
	}
}

// TestAuthority: what it issues is believed by who trusts it, and by nobody else, until it ends.
func TestAuthority(t *testing.T) {
	a, b := authority(t), authority(t)
	cert, key, err := a.Issue("client", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	old, _, err := a.Issue("late", time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		t.Errorf("the key of the certificate: %v", err)
	}
	for _, c := range []struct {
		cert []byte
		by   *Authority
		want string
	}{{cert, a, ""}, {cert, b, "unknown authority"}, {old, a, "expired"}} {
		leaf := parse(t, c.cert)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(c.by.PEM)
		_, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "127.0.0.1"})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("Verify = %v, want %q", err, c.want)
		}
	}
}

func authority(t *testing.T) *Authority {
	t.Helper()
	a, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func parse(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
