package rig

// Links: what they hold, drop, delay and refuse between a client and a server.

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
)

// An echo is a server that says what it hears, and keeps it.
type echo struct {
	ln net.Listener

	mu    sync.Mutex
	heard []byte
	conns []net.Conn
	done  sync.WaitGroup
}

func (e *echo) serve() {
	for {
		c, err := e.ln.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		e.conns = append(e.conns, c)
		e.mu.Unlock()
		e.done.Go(func() {
			defer c.Close()
			buf := make([]byte, 4096)
			for {
				n, err := c.Read(buf)
				e.mu.Lock()
				e.heard = append(e.heard, buf[:n]...)
				e.mu.Unlock()
				if n > 0 {
					if _, err := c.Write(buf[:n]); err != nil {
						return
					}
				}
				if err != nil {
					return
				}
			}
		})
	}
}

func (e *echo) hears() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return string(e.heard)
}

// hangUp ends the connections as a server that dies does.
func (e *echo) hangUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.conns {
		c.Close()
	}
}

// linked is an echo and a link to it.
func linked(t *testing.T) (*echo, *Link) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{ln: ln}
	e.done.Go(e.serve)
	port, release, err := redistest.ForTests(t).ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	l := openLink(port, ln.Addr().String)
	l.end = release
	l.setDown(false)
	t.Cleanup(func() {
		l.Close() // waits for all that it has started
		ln.Close()
		e.hangUp()
		e.done.Wait()
		if err := l.failure(); err != nil {
			t.Error(err)
		}
	})
	return e, l
}

func dial(t *testing.T, l *Link) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// talking is a connection that works.
func talking(t *testing.T, l *Link) *net.TCPConn {
	t.Helper()
	c := dial(t, l)
	say(t, c, "a")
	hear(t, c, "a")
	return c
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatalf("writing %q = %v", text, err)
	}
}

// generous is for what must come, brief for what must not: it is never too short, since
// what comes later has not come.
const (
	generous = 20 * time.Second
	brief    = 30 * time.Millisecond
)

func hear(t *testing.T, c net.Conn, want string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(generous))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read = %q, %v, want %q", got, err, want)
	}
}

func silence(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(brief))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read = %d, %v, want nothing", n, err)
	}
}

// end reads until the stream has ended in the way wanted: nil is orderly.
func end(t *testing.T, c net.Conn, want error) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(generous))
	if b, err := io.ReadAll(c); !errors.Is(err, want) || len(b) > 0 {
		t.Fatalf("the stream ends with %q, %v, want %v", b, err, want)
	}
}

// await waits until the echo has heard that.
func await(t *testing.T, e *echo, want string) {
	t.Helper()
	verdict.Eventually(t, fmt.Sprintf("the server hears %q", want), func() bool { return e.hears() == want })
}

func works(t *testing.T, l *Link) {
	t.Helper()
	c := dial(t, l)
	say(t, c, "well?")
	hear(t, c, "well?")
}

func TestHoldKeepsEveryByte(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]Direction{"requests": Requests, "replies": Replies, "both": Both} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, l := linked(t)
			c := talking(t, l)
			l.Hold(d)
			say(t, c, "b")
			say(t, c, "c")
			silence(t, c)
			heard := "a"
			if d&Requests == 0 {
				heard = "abc"
			}
			await(t, e, heard)
			l.Heal()
			hear(t, c, "bc")
			say(t, c, "d")
			hear(t, c, "d")
		})
	}
}

func TestCutTakesBytesAndHealEndsTheStream(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]Direction{"requests": Requests, "replies": Replies, "both": Both} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, l := linked(t)
			old, idle := talking(t, l), talking(t, l)
			l.Cut(d)
			heard := "aa"
			fresh := dial(t, l) // accepted, and nothing comes of it
			for c, text := range map[net.Conn]string{old: "b", fresh: "c"} {
				say(t, c, text)
				silence(t, c)
				if d&Requests == 0 {
					heard += text
				}
				await(t, e, heard)
			}
			l.Heal()
			for _, c := range []net.Conn{old, idle, fresh} {
				end(t, c, syscall.ECONNRESET)
			}
			works(t, l)
			await(t, e, heard+"well?") // and nothing of what was cut
		})
	}
}

// Who is being started as a child has the descriptors of its parent until it executes: the listener's, too.
func TestChildrenStart(t *testing.T) {
	t.Parallel()
	_, l := linked(t)
	over := make(chan struct{})
	var children sync.WaitGroup
	children.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			if err := exec.Command("true").Run(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 500 {
		l.Refuse()
		if c, err := net.Dial("tcp", l.Addr()); err == nil {
			c.Close()
			t.Error("a connection is accepted while they are refused")
		}
		l.Heal()
		l.Cut(Both)
		l.Heal()
		if err := l.failure(); err != nil { // which the next would fix
			t.Error(err)
			break
		}
	}
	close(over)
	children.Wait()
	works(t, l)
}

func TestCutLeavesTheOtherDirection(t *testing.T) {
	t.Parallel()
	e, l := linked(t)
	c := talking(t, l)
	l.Cut(Requests)
	e.hangUp()
	end(t, c, nil) // the server's end of the stream comes through
	l.Heal()
}

func TestDelay(t *testing.T) {
	t.Parallel()
	_, l := linked(t)
	c := dial(t, l)
	const by = 20 * time.Millisecond
	for d, want := range map[Direction]time.Duration{Requests: by, Replies: by, Both: 2 * by} {
		l.Delay(d, by)
		began := time.Now()
		say(t, c, "a")
		hear(t, c, "a")
		if took := time.Since(began); took < want {
			t.Errorf("an answer under Delay(%d, %v) took %v, want %v or more", d, by, took, want)
		}
		l.Heal()
	}
	l.Delay(Both, time.Hour)
	say(t, c, "b")
	silence(t, c)
	l.Delay(Both, 0)
	hear(t, c, "b")
}

func TestReset(t *testing.T) {
	t.Parallel()
	e, l := linked(t)
	c := talking(t, l)
	l.Hold(Requests)
	say(t, c, "b")
	l.Reset()
	end(t, c, syscall.ECONNRESET)
	l.Heal()
	works(t, l)
	await(t, e, "awell?") // what was on the way has gone with its connection
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	_, l := linked(t)
	c := talking(t, l)
	l.Refuse()
	end(t, c, syscall.ECONNRESET)
	for range 3 {
		if _, err := net.Dial("tcp", l.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial = %v, want ECONNREFUSED", err)
		}
	}
	l.Heal()
	works(t, l)
}

func TestEndsPassThrough(t *testing.T) {
	t.Parallel()
	e, l := linked(t)
	c := dial(t, l)
	say(t, c, "a")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	hear(t, c, "a") // the other half lives
	end(t, c, nil)

	c = dial(t, l)
	say(t, c, "b")
	hear(t, c, "b")
	e.hangUp()
	end(t, c, nil)

	e.ln.Close() // nobody serves
	if c, err := net.Dial("tcp", l.Addr()); err == nil {
		defer c.Close()
		end(t, c, syscall.ECONNRESET)
	} else if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("dial where nobody serves = %v, want ECONNRESET", err)
	}
}
