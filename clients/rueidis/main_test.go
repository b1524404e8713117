package rueidisnode

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) {
	// url is redis://localhost:6379 in a user's program; in examples it is the tests' server.
	redistest.Main(m, func(s *redistest.Server) { url = s.URL() })
}

const generous = 20 * time.Second

func soon() time.Time { return time.Now().Add(generous) }

// small makes connections that cost less memory than the client's: tests have many.
func small(o rueidis.ClientOption) rueidis.ClientOption {
	o.ReadBufferEachConn, o.WriteBufferEachConn, o.RingScaleEachConn = 4<<10, 4<<10, 6
	o.PipelineMultiplex = 2
	o.ForceSingleClient = true
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = 2 * time.Second
	}
	return o
}

// newClient is a client that ends with the test. That its server cannot be reached is no
// error here.
func newClient(t testing.TB, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(small(o))
	if client == nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func optionsOf(t testing.TB, s *redistest.Server) rueidis.ClientOption {
	t.Helper()
	o, err := rueidis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func newNode(t testing.TB, o rueidis.ClientOption) *Node {
	t.Helper()
	n, err := New(newClient(t, o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

func shared(t testing.TB) *Node { return newNode(t, optionsOf(t, redistest.Shared(t))) }

// want demands an error of all these kinds.
func want(t *testing.T, what string, err error, targets ...error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s = nil, want %v", what, targets)
	}
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%s = %v, want %v", what, err, target)
		}
	}
	var said *strategy.ServerError
	if err != nil && !errors.As(err, &said) {
		t.Errorf("%s = %T, want a *ServerError", what, err)
	}
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := soon(); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", generous, what)
		}
	}
}

func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(generous):
		t.Fatalf("not within %v: %s", generous, what)
		panic("unreachable")
	}
}

func echo(t *testing.T, n *Node, text string) {
	t.Helper()
	reply, err := n.Do(t.Context(), soon(), "ECHO", text)
	if got := fmt.Sprintf("%s", reply); err != nil || got != text {
		t.Fatalf("ECHO %s = %s, %v", text, got, err)
	}
}

// quick has a server looked for no longer than that.
func quick(o rueidis.ClientOption) rueidis.ClientOption {
	o.Dialer = net.Dialer{Timeout: time.Second}
	return o
}

func words(err error) string {
	if err == nil {
		return ""
	}
	return strings.ToLower(err.Error())
}
