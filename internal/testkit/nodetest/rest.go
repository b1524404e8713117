package nodetest

import (
	"net"
	"testing"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
)

// HangUp ends the connection from the server's side, and returns once the client's machine has taken that in.
func (c *Conn) HangUp(t testing.TB) {
	t.Helper()
	socket := c.Conn.(*net.TCPConn)
	socket.CloseWrite() //nolint:errcheck // the client may have gone first
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	verdict.Eventually(t, "the client's machine knows the end", func() bool {
		taken := true
		err := raw.Control(func(fd uintptr) { taken = acknowledged(fd) })
		return err != nil || taken
	})
}

// ClosedAtRest checks that a connection that the server has closed at rest costs no call.
func ClosedAtRest(t *testing.T, s Subject) {
	s.each(t, func(t *testing.T, protocol int) {
		for what, call := range calls {
			if what == "Subscribe" {
				continue // see subscribeAfterADeathAtRest
			}
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				n, f := s.on(t, protocol, (*Conn).Plain)
				for range 20 {
					Echo(t, n, "warm")
					if err := n.Session(t.Context(), Soon(), "k", func(driver.Conn) error { return nil }); err != nil {
						t.Fatal(err)
					}
					f.HangUp(t)
					if s.Noticed != nil {
						verdict.Eventually(t, "the Node's reader meets the end", func() bool { return s.Noticed(n) })
					}
					if err := call(n, t.Context(), Soon()); err != nil {
						t.Fatalf("%s after the server has hung up = %v, want nil: on a new connection", what, err)
					}
				}
			})
		}
	})
}

// HangUp ends all connections as [Conn.HangUp] does.
func (s *Server) HangUp(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if !c.over {
			c.HangUp(t)
		}
	}
}
