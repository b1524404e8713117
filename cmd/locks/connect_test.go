//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Tests how the tools find their servers and log in: addresses, passwords, TLS, Unix sockets.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/clitest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

func TestConnectMisuse(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte("\nsecret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(redisVar, "")
	for _, c := range []struct{ args, want string }{
		{"inspect a", "which Redis? Give --redis or set REDIS_URL"},
		{"inspect a --redis=", "an address without a host"},
		{"inspect a --redis localhost:0", "an address without a host, or with a port that is none"},
		{"inspect a --redis localhost:redis", "an address cannot be read"},
		{"inspect a --redis http://localhost", "an address of another kind"},
		{"inspect a --redis unix://relative", "a unix address without a path"},
		{"inspect a --redis redis://localhost/x", "whose path is no database's number"},
		{"inspect a --redis redis://localhost?password=secret", "an address with a ? or #"},
		{"inspect a --redis redis://me:secret@localhost", "--redis has a password, and everybody on this machine can read arguments"},
		{"inspect a --redis me:secret@localhost:6379", "--redis has a password"},
		{"inspect a --redis me:secret@/tmp/redis.sock", "an address without a host"},
		{"inspect a --redis redis://:sec%ret@localhost", "an address cannot be read"},
		{"inspect a --redis me@localhost", "there is a user and no password"},
		{"inspect a --redis localhost --user me", "there is a user and no password"},
		{"inspect a --redis localhost --redis localhost", "fairqueue takes one server, --redis names 2"},
		{"inspect a --redis localhost --strategy redlock", "redlock takes 3 servers or more, --redis names 1"},
		{"inspect a --redis localhost --strategy nope", `there is no strategy "nope": there are setnxgetset, `},
		{"inspect a --redis localhost --db -1", "--db is -1: allowed are 0 and more"},
		{"inspect a --redis localhost --password-file " + empty, "the first line is empty"},
		{"inspect a --redis localhost --password-file /there/is/none", "--password-file: open /there/is/none"},
		{"inspect a --redis localhost --tls-ca " + empty, "--tls-ca without TLS"},
		{"inspect a --redis localhost --tls --tls-ca " + empty, "there is no certificate in"},
		{"inspect a --redis localhost --tls --tls-cert " + empty, "needs both --tls-cert and --tls-key"},
		{"inspect a --redis localhost --tls --tls-cert " + empty + " --tls-key " + empty, "--tls-cert and --tls-key: "},
		{"inspect a --redis /tmp/redis.sock --tls", "--tls with a Unix socket"},
		{"inspect a b", "want the lock's name, and no other argument"},
		{"release", "want the lock's name: locks release NAME"},
	} {
		errs := clitest.Misuse(t, rootCommand(), c.args, c.want)
		if strings.Contains(errs, "sec") {
			t.Errorf("locks %s: the password is in %q", c.args, errs)
		}
	}
}

func TestParseAddress(t *testing.T) {
	for s, want := range map[string]address{
		"localhost":                     {network: "tcp", at: "localhost:6379"},
		"localhost:1":                   {network: "tcp", at: "localhost:1"},
		"[::1]:2":                       {network: "tcp", at: "[::1]:2"},
		"redis://h/3":                   {network: "tcp", at: "h:6379", database: 3},
		"rediss://u:p%40%3F@h:4/":       {network: "tcp", at: "h:4", user: "u", password: "p@?", tls: true},
		"redis://:p@h":                  {network: "tcp", at: "h:6379", password: "p"},
		"unix:///run/redis.sock":        {network: "unix", at: "/run/redis.sock"},
		"unix://u:p@/run/redis.sock":    {network: "unix", at: "/run/redis.sock", user: "u", password: "p"},
		"/run/redis.sock":               {network: "unix", at: "/run/redis.sock"},
		"./redis.sock":                  {network: "unix", at: "./redis.sock"},
		"redis://[2001:db8::1]:6380/15": {network: "tcp", at: "[2001:db8::1]:6380", database: 15},
	} {
		if got, err := parseAddress(s); got != want || err != nil {
			t.Errorf("parseAddress(%q) = %+v, %v, want %+v", s, got, err, want)
		}
	}
}

// TestPassword: each way to give it lets us in, and it is nowhere to be seen.
func TestPassword(t *testing.T) {
	t.Parallel()
	const password = "sword:fish@/?"
	s := redistest.Own(t, redistest.Config{User: "angler", Password: password})
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password+"\r\nnot this\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env   []string
		args  []string
		stdin string
	}{
		"URL":           {env: []string{"REDIS_URL=" + s.URL()}},
		"environment":   {env: []string{"REDIS_URL=" + s.Addr(), "REDIS_USER=angler", "REDIS_PASSWORD=" + password}},
		"file":          {env: []string{"REDIS_USER=wrong", "REDIS_PASSWORD=wrong"}, args: []string{"--redis", s.Addr(), "--user", "angler", "--password-file", file}},
		"stdin":         {args: []string{"--redis", "redis://angler@" + s.Addr(), "--password-file", "-"}, stdin: password + "\nrest\n"},
		"file over URL": {env: []string{"REDIS_URL=redis://other:wrong@" + s.Addr()}, args: []string{"--user", "angler", "--password-file", file}},
	} {
		t.Run(name, func(t *testing.T) {
			lock := newName(t)
			c1 := toolFor(t, nil, append(append([]string{"exec", lock}, c.args...), "--", "sh", "-c", "echo in; cat; read x <&3; true")...)
			c1.Env = append(c1.Env, c.env...)
			c1.Stdin = strings.NewReader(c.stdin)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			c1.ExtraFiles = []*os.File{r}
			c1.start().line()
			r.Close()
			for _, pid := range append(strings.Fields(allChildren(c1.Process.Pid)), fmt.Sprint(c1.Process.Pid)) {
				if line, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.Contains(string(line), "fish") {
					t.Errorf("the list of processes has it: %q", line)
				}
			}
			w.Close()
			_, rest, _ := strings.Cut(c.stdin, "\n")
			if out := c1.wantEnd(0); out != rest {
				t.Errorf("the command read %q, want the rest, %q", out, rest)
			}
			for _, args := range [][]string{{"inspect", lock, "--json"}, {"release", lock, "--force"}} {
				c2 := toolFor(t, nil, append(args, c.args...)...)
				c2.Env = append(c2.Env, c.env...)
				c2.Stdin = strings.NewReader(c.stdin)
				out := c2.start().wantEnd(0)
				if out == "" || strings.Contains(out, "fish") {
					t.Errorf("%q: %q", args, out)
				}
			}
		})
	}
}

// TestPasswordRefused: the password is wrong, or not wanted, or no Redis answers: no message repeats it.
func TestPasswordRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Own(t, redistest.Config{User: "angler", Password: "right"})
	quoting := listen(t, "tcp", "127.0.0.1:0", func(c net.Conn) {
		defer c.Close()
		b := make([]byte, 4096)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			fmt.Fprintf(c, "-ERR unknown command 'AUTH', with args beginning with: %q \r\n", b[:n])
		}
	})
	otherwise := listen(t, "tcp", "127.0.0.1:0", func(c net.Conn) {
		defer c.Close()
		b := make([]byte, 4096)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
			fmt.Fprint(c, "-ERR who says <swordfishes>? I know no swordfishes\r\n")
		}
	})
	closing := listen(t, "tcp", "127.0.0.1:0", func(c net.Conn) { c.Close() })
	silent := listen(t, "tcp", "127.0.0.1:0", func(net.Conn) {})
	open := redistest.Shared(t)
	for _, c := range []struct{ addr, user, says string }{
		{s.Addr(), "angler", s.Addr() + ": not sent: user \"angler\": WRONGPASS"},
		{s.Addr(), "", s.Addr() + ": not sent: user \"default\": WRONGPASS"},
		{open.Addr(), "", "AUTH"}, // it asks for none
		{quoting, "", "unknown command 'AUTH'"},
		{otherwise, "", "ERR who says <***>? I know no ***"},
		{closing, "", "not sent"},
		{silent, "", ""},
		{"127.0.0.1:1", "", "connection refused"},
	} {
		for _, args := range [][]string{{"exec", "x", "--", "true"}, {"release", "x", "--force"}} {
			t.Run(args[0]+" on "+c.says, func(t *testing.T) {
				t.Parallel()
				x := toolFor(t, nil, args...)
				x.Env = append(x.Env, "REDIS_URL="+c.addr, "REDIS_USER="+c.user, "REDIS_PASSWORD=swordfishes")
				out := x.start().wantEnd(69, c.says)
				if strings.Contains(out+x.errs.String(), "fishes") {
					t.Errorf("%q on %s: the password is in %q, %q", args, c.says, out, x.errs)
				}
			})
		}
	}
}

// listen serves until the end of the test.
func listen(t *testing.T, network, at string, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen(network, at)
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
			go serve(c)
		}
	}()
	return l.Addr().String()
}

// relay leads to another address. A connection for whose reply passes returns false stays silent from
// then on.
func relay(t *testing.T, network, at, to string, passes func() bool) (addr string) {
	t.Helper()
	return listen(t, network, at, func(client net.Conn) {
		defer client.Close()
		server, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer server.Close()
		go func() {
			io.Copy(server, client)
			server.Close()
		}()
		silent := false
		for b := make([]byte, 4096); ; {
			n, err := server.Read(b)
			if err != nil {
				return
			}
			if silent = silent || !passes(); !silent {
				client.Write(b[:n])
			}
		}
	})
}

// TestUnixSocket: of a relay, since a container's sockets are not ours.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	dir, err := os.MkdirTemp("", "locks") // t.TempDir's path may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "redis.sock")
	relay(t, "unix", path, s.Addr(), func() bool { return true })
	for _, form := range []string{path, "unix://" + path} {
		toolFor(t, nil, "exec", newName(t), "--redis", form, "--", "true").start().wantEnd(0)
	}
}

// TestDatabase: a lock is in the database that was named.
func TestDatabase(t *testing.T) {
	t.Parallel()
	s, name := redistest.Own(t, redistest.Config{Database: 3}), newName(t)
	c := toolFor(t, nil, "exec", name, "--redis", s.Addr(), "--db", "3", "--", "sh", "-c", "echo; read x")
	in := c.input()
	c.start().line()
	if !inspected(t, s, name).Held {
		t.Error("it is not held in the database 3")
	}
	in.Close()
	c.end()
}

// TestTLS: with a client's certificate, on a real server; and what it says when the names,
// the authority or the certificate are wrong.
func TestTLS(t *testing.T) {
	t.Parallel()
	s := redistest.Own(t, redistest.Config{})
	p := newAuthority(t)
	server := p.issue(t, "redis.test")
	client := p.issue(t, "client")
	other := newAuthority(t)
	if err := s.Put(t.Context(), map[string][]byte{"ca.pem": p.pem, "server.pem": server.cert, "server.key": server.key}); err != nil {
		t.Skipf("not proven: that locks work over TLS: %v", err)
	}
	port, release, err := redistest.ForTests(t).ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	conn := s.Pool().Get()
	defer conn.Close()
	if _, err := conn.Do("CONFIG", "SET", "tls-ca-cert-file", "ca.pem", "tls-cert-file", "server.pem", "tls-key-file", "server.key",
		"tls-auth-clients", "yes", "tls-port", port); err != nil {
		t.Skipf("not proven: that locks work over TLS: the server has none: %v", err)
	}
	host, _, _ := net.SplitHostPort(s.Addr())
	at := net.JoinHostPort(host, fmt.Sprint(port))
	if c, err := net.DialTimeout("tcp", at, 5*time.Second); err != nil {
		t.Skipf("not proven: that locks work over TLS: the port cannot be reached: %v", err)
	} else {
		c.Close()
	}

	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca, cert, key := file("ca", p.pem), file("cert", client.cert), file("key", client.key)
	all := []string{"--tls-ca", ca, "--tls-cert", cert, "--tls-key", key, "--tls-server-name", "redis.test"}
	run := func(code int, says []string, redis string, flags ...string) {
		t.Helper()
		toolFor(t, nil, append(append([]string{"exec", newName(t), "--redis", redis}, flags...), "--", "true")...).start().wantEnd(code, says...)
	}
	run(0, nil, "rediss://"+at, all...)
	run(0, nil, at, append(all, "--tls")...)
	env := toolFor(t, nil, "exec", newName(t), "--", "true")
	env.Env = append(env.Env, redisVar+"=rediss://"+at, caVar+"="+ca, certVar+"="+cert, keyVar+"="+key, nameVar+"=redis.test")
	env.start().wantEnd(0)

	run(69, []string{"not other.test"}, "rediss://"+at, append(all, "--tls-server-name", "other.test")...)
	run(69, []string{"unknown authority"}, "rediss://"+at, append(all, "--tls-ca", file("other", other.pem))...)
	run(69, []string{""}, "rediss://"+at, "--tls-ca", ca, "--tls-server-name", "redis.test") // without a certificate
	run(69, []string{""}, at, "--ttl", "3s")                                                 // without TLS
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

type pair struct{ cert, key []byte }

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func (a *authority) issue(t *testing.T, name string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}
