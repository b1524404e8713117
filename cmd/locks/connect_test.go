//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Tests how the tools find their servers and log in: addresses, passwords, TLS, Unix sockets.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

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
	redistest.Must(t, os.WriteFile(file, []byte(password+"\r\nnot this\n"), 0o600))
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
			with := func(args ...string) *tool {
				x := toolFor(t, nil, args...)
				x.Env = append(x.Env, c.env...)
				x.Stdin = strings.NewReader(c.stdin)
				return x
			}
			holder := with(slices.Concat([]string{"exec", lock}, c.args, []string{"--", "sh", "-c", "echo in; cat; read x <&3; true"})...)
			r, w, err := os.Pipe()
			redistest.Must(t, err)
			holder.ExtraFiles = []*os.File{r}
			holder.start().line()
			r.Close()
			for _, pid := range append(strings.Fields(allChildren(holder.Process.Pid)), fmt.Sprint(holder.Process.Pid)) {
				if line, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.Contains(string(line), "fish") {
					t.Errorf("the list of processes has it: %q", line)
				}
			}
			w.Close()
			_, rest, _ := strings.Cut(c.stdin, "\n")
			if out := holder.wantEnd(0); out != rest {
				t.Errorf("the command read %q, want the rest, %q", out, rest)
			}
			if out := with(append([]string{"inspect", lock, "--json"}, c.args...)...).start().wantEnd(0); out == "" || strings.Contains(out, "fish") {
				t.Errorf("inspect says %q", out)
			}
		})
	}
}

// TestAddressed: the tool says in words for people why it has not reached a server.
func TestAddressed(t *testing.T) {
	c := connection{servers: []address{{at: "localhost:1"}}}
	for words, want := range map[string]string{
		"dial tcp 127.0.0.1:1: connect: connection refused":                              "connection refused",
		"dial tcp: lookup nowhere on 10.0.0.1:53: no such host":                          "lookup nowhere on 10.0.0.1:53: no such host",
		"dial unix /a/b: connect: no such file or directory":                             "no such file or directory",
		"no answer in time: TLS handshake timeout":                                       "no answer in time: TLS handshake timeout: does this port have TLS?",
		"connection refused; gave up after 2.984431s: context deadline exceeded":         "connection refused; gave up after 2.9s: context deadline exceeded",
		"connection refused; gave up after 1m0.5s behind a caller, and after 3s, 10.98m": "connection refused; gave up after 1m0.5s behind a caller, and after 3s, 10.98m",
	} {
		if got := c.addressed("127.0.0.1:1: not sent: " + words); got != "127.0.0.1:1: not sent: "+want {
			t.Errorf("addressed(%q) = %q, want %q", words, got, want)
		}
	}
}

// TestPasswordRefused: the password is wrong, or not wanted, or no Redis answers: no message repeats it.
func TestPasswordRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Own(t, redistest.Config{User: "angler", Password: "right"})
	quoting := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
		c.Say("-ERR unknown command 'AUTH', with args beginning with: %q \r\n", cmd)
	})
	otherwise := nodetest.NewServer(t, func(c *nodetest.Conn, _ []string) {
		c.Say("-ERR who says <swordfishes>? I know no swordfishes\r\n")
	})
	closing := listen(t, "tcp", "127.0.0.1:0", func(c net.Conn) { c.Close() })
	silent := listen(t, "tcp", "127.0.0.1:0", func(net.Conn) {})
	web := listen(t, "tcp", "127.0.0.1:0", func(c net.Conn) {
		c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		c.Read(make([]byte, 1)) //nolint:errcheck // it says no more until the client leaves
	})
	open := redistest.Shared(t)
	for _, c := range []struct{ addr, user, says string }{
		{s.Addr(), "angler", s.Addr() + ": not sent: user \"angler\": WRONGPASS"},
		{s.Addr(), "", s.Addr() + ": not sent: user \"default\": WRONGPASS"},
		{open.Addr(), "", "AUTH"}, // it asks for none
		{quoting.Addr, "", "unknown command 'AUTH'"},
		{otherwise.Addr, "", "ERR who says <***>? I know no ***"},
		{closing, "", "not sent"},
		{silent, "", ""},
		{"127.0.0.1:1", "", "127.0.0.1:1: not sent: connection refused\n"},
		{web, "", web + ": not sent: what answers there is no Redis\n"},
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
	redistest.Must(t, err)
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
	redistest.Must(t, err)
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
	c := hold(t, nil, 0, name, "--redis", s.Addr(), "--db", "3")
	if !inspected(t, s, name).Held {
		t.Error("it is not held in the database 3")
	}
	c.in.Close()
	c.end()
}

// TestTLS: with a client's certificate, on a real server; and what it says when the names,
// the authority or the certificate are wrong.
func TestTLS(t *testing.T) {
	t.Parallel()
	authority, err := redistest.NewAuthority()
	redistest.Must(t, err)
	other, err := redistest.NewAuthority()
	redistest.Must(t, err)
	_, at := redistest.OwnTLS(t, authority, redistest.Config{})
	clientCert, clientKey, err := authority.Issue("client", time.Time{})
	redistest.Must(t, err)
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		redistest.Must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	ca, cert, key := file("ca", authority.PEM), file("cert", clientCert), file("key", clientKey)
	all := []string{"--tls-ca", ca, "--tls-cert", cert, "--tls-key", key, "--tls-server-name", "localhost"}
	run := func(code int, says []string, redis string, flags ...string) {
		t.Helper()
		toolFor(t, nil, append(append([]string{"exec", newName(t), "--redis", redis}, flags...), "--", "true")...).start().wantEnd(code, says...)
	}
	run(0, nil, "rediss://"+at, all...)
	run(0, nil, at, append(all, "--tls")...)
	env := toolFor(t, nil, "exec", newName(t), "--", "true")
	env.Env = append(env.Env, redisVar+"=rediss://"+at, caVar+"="+ca, certVar+"="+cert, keyVar+"="+key, nameVar+"=localhost")
	env.start().wantEnd(0)

	run(69, []string{"not other.test"}, "rediss://"+at, append(all, "--tls-server-name", "other.test")...)
	run(69, []string{"unknown authority"}, "rediss://"+at, append(all, "--tls-ca", file("other", other.PEM))...)
	run(69, []string{""}, "rediss://"+at, "--tls-ca", ca, "--tls-server-name", "localhost") // without a certificate
	run(69, []string{""}, at, "--ttl", "3s")                                                // without TLS
}
