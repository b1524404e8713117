//go:build unix

package strategy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// polled is a connection that polls, and its server's side of it: a Unix socket's, on which
// what is written is there when Write returns.
func polled(t *testing.T) (client, server net.Conn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "poll") // t.TempDir's paths are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	return through(t, l)
}

// through is a connection that polls, to l, which it closes.
func through(t *testing.T, l net.Listener) (client, server net.Conn) {
	t.Helper()
	defer l.Close()
	if before := runtime.GOMAXPROCS(0); before < 2 {
		runtime.GOMAXPROCS(2)
		t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	}
	client, err := strategy.BusyPoll(nil)(t.Context(), l.Addr().Network(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

// say writes a byte to whoever is at the other end.
func say(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte{'!'}); err != nil {
		t.Error(err)
	}
}

func hear(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 10)); n != 1 || err != nil {
		t.Errorf("Read = %d, %v, want 1, nil", n, err)
	}
}

// hearLate reads what is said when the read has polled in vain, or sleeps without.
func hearLate(t *testing.T, client, server net.Conn) {
	t.Helper()
	misses, rest := strategy.Polls(client)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); runtime.Gosched() {
			if m, r := strategy.Polls(client); m != misses || r != rest {
				break
			}
		}
		say(t, server)
	}()
	hear(t, client)
	<-done
}

func TestBusyPoll(t *testing.T) {
	t.Run("Reads", func(t *testing.T) {
		client, server := polled(t)
		for range 100 {
			say(t, server)
			hear(t, client)
			say(t, client)
			hear(t, server)
		}
		if misses, rest := strategy.Polls(client); misses != 0 || rest != 0 {
			t.Errorf("polls in vain = %d, rest = %d, want 0, 0: what was read was there", misses, rest)
		}
		if n, err := client.Read(nil); n != 0 || err != nil {
			t.Errorf("Read(nil) = %d, %v, want 0, nil", n, err)
		}
	})

	t.Run("PollsLessAndLess", func(t *testing.T) {
		client, server := polled(t)
		for i, want := range []int32{1, 3, 7, 15, 31, 63, 63} {
			hearLate(t, client, server)
			misses, rest := strategy.Polls(client)
			if misses != min(int32(i+1), 6) || rest != want {
				t.Fatalf("after %d polls in vain (it counts %d) it rests for %d reads, want %d", i+1, misses, rest, want)
			}
			for range rest { // which do not poll, though it is there
				say(t, server)
				hear(t, client)
			}
			if m, rest := strategy.Polls(client); m != misses || rest != 0 {
				t.Fatalf("polls in vain = %d, rest = %d, want %d, 0: nothing has polled", m, rest, misses)
			}
		}
		say(t, server)
		hear(t, client)
		if misses, _ := strategy.Polls(client); misses != 0 {
			t.Errorf("polls in vain = %d, want 0: one was not", misses)
		}
	})

	t.Run("OneAtATime", func(t *testing.T) {
		client, server := polled(t)
		hearLate(t, client, server)
		say(t, server)
		hear(t, client) // it rested
		strategy.Poll(true)
		defer strategy.Poll(false)
		for range 3 {
			say(t, server)
			hear(t, client)
		}
		if misses, rest := strategy.Polls(client); misses != 1 || rest != 0 {
			t.Errorf("polls in vain = %d, rest = %d, want 1, 0: another polls", misses, rest)
		}
	})

	t.Run("Ends", func(t *testing.T) {
		client, server := polled(t)
		client.SetReadDeadline(time.Now().Add(-time.Second))
		if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read after the deadline = %d, %v, want os.ErrDeadlineExceeded", n, err)
		}
		client.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read until the deadline = %d, %v, want os.ErrDeadlineExceeded", n, err)
		}
		client.SetReadDeadline(time.Time{})
		server.Close()
		if n, err := client.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("Read of a stream that has ended = %d, %v, want io.EOF", n, err)
		}
		closed, _ := polled(t)
		go closed.Close()
		if n, err := closed.Read(make([]byte, 1)); n != 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read of a connection that is closed = %d, %v, want net.ErrClosed", n, err)
		}
		say(t, nobodyPolls(t)) // whatever way a read has ended
	})

	// What is wrong with a socket it says once: to whoever polls.
	t.Run("IsReset", func(t *testing.T) {
		for _, within := range []bool{false, true} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			client, server := through(t, l)
			server.(*net.TCPConn).SetLinger(0)
			reset := make(chan struct{})
			go func() { defer close(reset); server.Close() }()
			if !within {
				<-reset
			}
			n, err := client.Read(make([]byte, 1))
			var told *net.OpError
			if n != 0 || !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &told) || told.Op != "read" || told.Addr.String() != client.RemoteAddr().String() {
				t.Errorf("Read of a connection that was reset = %d, %v, want ECONNRESET, as net tells it", n, err)
			}
		}
	})

	t.Run("Dials", func(t *testing.T) {
		failure := errors.New("no way")
		ends, _ := net.Pipe()
		defer ends.Close()
		for _, err := range []error{failure, nil} {
			c, got := strategy.BusyPoll(func(_ context.Context, network, address string) (net.Conn, error) {
				if network != "tcp" || address != "here" {
					t.Errorf("dial(%q, %q), want what was asked for", network, address)
				}
				return ends, err
			})(t.Context(), "tcp", "here")
			if got != err || err == nil && c != ends || err != nil && c != nil {
				t.Errorf("dial = %v, %v, want %v; what is no socket is as it was", c, got, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := strategy.BusyPoll(nil)(ctx, "tcp", "127.0.0.1:1"); !errors.Is(err, context.Canceled) {
			t.Errorf("dial when ctx has ended = %v, want that", err)
		}
	})

	t.Run("Alone", func(t *testing.T) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := strategy.BusyPoll(nil)(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, plain := c.(*net.TCPConn); !plain {
			t.Errorf("with one processor dial = %T, want *net.TCPConn: to poll would keep the others from it", c)
		}
	})

	t.Run("Costs", func(t *testing.T) {
		client, server := polled(t)
		b := make([]byte, 1)
		if n := testing.AllocsPerRun(100, func() { server.Write(b); client.Read(b) }); n != 0 {
			t.Errorf("allocations per read = %v, want 0", n)
		}
	})
}

// nobodyPolls looks whether the next who wants to poll may, and returns a server's side.
func nobodyPolls(t *testing.T) net.Conn {
	t.Helper()
	client, server := polled(t)
	hearLate(t, client, server)
	if misses, _ := strategy.Polls(client); misses != 1 {
		t.Errorf("polls = %d, want 1: nobody else polls", misses)
	}
	return server
}
