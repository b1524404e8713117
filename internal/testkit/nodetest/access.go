package nodetest

import (
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// NoAccessSendsNothing checks what a Node says of a server that lets nobody in without a password, or nobody
// from here: nothing was sent, with the server's words, and without the password.
func NoAccessSendsNothing(t *testing.T, s Subject) {
	for name, c := range map[string]struct {
		config     redistest.Config
		user, with string // who asks, with which password
		shut       []any  // a command that shuts the server
		words      string
	}{
		"no password":             {config: redistest.Config{Password: "s3cret"}, words: "NOAUTH"},
		"wrong password":          {config: redistest.Config{Password: "s3cret"}, with: "wr0ng", words: "WRONGPASS"},
		"a user's wrong password": {config: redistest.Config{User: "app", Password: "s3cret"}, user: "app", with: "wr0ng", words: "WRONGPASS"},
		"no such user":            {config: redistest.Config{User: "app", Password: "s3cret"}, user: "nobody", with: "wr0ng", words: "WRONGPASS"},
		"protected mode":          {shut: []any{"CONFIG", "SET", "protected-mode", "yes"}, words: "DENIED"}, // of who comes from elsewhere
		"too many clients":        {shut: []any{"CONFIG", "SET", "maxclients", 1}},                          // its words may get lost with the connection
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Own(t, c.config)
			if c.shut != nil {
				admin := srv.Pool().Get() // which keeps its connection
				defer admin.Close()
				if _, err := admin.Do(c.shut[0].(string), c.shut[1:]...); err != nil {
					t.Skipf("NOT PROVEN: what a node says of %s: %v", name, err)
				}
			}
			addr := srv.Addr()
			if c.words == "DENIED" && takesConnections(srv) { // it takes this machine for its own
				addr = protected(t)
				if !s.Farewells { // the client loses the words
					c.words = ""
				}
			}
			u := url.URL{Scheme: "redis", Host: addr}
			if c.with != "" {
				u.User = url.UserPassword(c.user, c.with)
			}
			n := s.Open(t, Options{URL: u.String()})
			refuses := func(what string, err error, words string) {
				t.Helper()
				Want(t, what, err, strategy.ErrUnsent)
				wantWords(t, what, err, words)
				if strings.Contains(err.Error(), "wr0ng") {
					t.Errorf("%s = %v, want no password in it", what, err)
				}
			}
			for what, call := range calls {
				refuses(what, call(n, t.Context(), Soon()), c.words)
			}
			_, err := n.Do(t.Context(), Soon(), "TIME", "")
			refuses("a command without a key", err, c.words)
			if c.words == "NOAUTH" {
				c.words = "" // Redis has others for a long command, and closes the connection
			}
			_, err = n.Eval(t.Context(), Soon(), driver.NewScript("one", "return 1"), []string{"k"}, make([]any, 20)...)
			refuses("a command of many arguments", err, c.words)
		})
	}
}

// protected is where somebody does to all clients what a Redis in protected mode does to those who come from
// elsewhere: it refuses at once, and hangs up when they have spoken.
func protected(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("-DENIED Redis is running in protected mode because protected mode is enabled\r\n")) //nolint:errcheck // of a client that has hung up
			c.Read(make([]byte, 1000))                                                                          //nolint:errcheck // likewise
			c.Close()
		}
	})
	t.Cleanup(func() { ln.Close(); work.Wait() })
	return ln.Addr().String()
}

// takesConnections reports whether the server answers a new connection.
func takesConnections(srv *redistest.Server) bool {
	c := srv.Pool().Get()
	defer c.Close()
	_, err := c.Do("PING")
	return err == nil
}
