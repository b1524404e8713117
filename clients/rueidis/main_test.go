// What all tests of rueidis begin with: clients and nodes of servers.
package rueidisnode

import (
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/clients/internal/lending"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	// url is redis://localhost:6379 in a user's program; in examples it is the tests' server.
	redistest.Main(m, func(s *redistest.Server) { url = s.URL() })
}

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
	redistest.Must(t, err)
	return o
}

func newNode(t testing.TB, o rueidis.ClientOption) *lending.Node {
	t.Helper()
	return lendingNode(t, newClient(t, o))
}

func lendingNode(t testing.TB, client rueidis.Client) *lending.Node {
	t.Helper()
	n := New(client).(*lending.Node)
	t.Cleanup(func() { n.Close() })
	return n
}

// A sentinel is a client whose server is named by Sentinel, as far as it says.
type sentinel struct{ rueidis.Client }

func (sentinel) Mode() rueidis.ClientMode { return rueidis.ClientModeSentinel }

func shared(t testing.TB) *lending.Node { return newNode(t, optionsOf(t, redistest.Shared(t))) }

var (
	soon = nodetest.Soon
	want = nodetest.Want
	echo = nodetest.Echo

	bubble = nodetest.Bubble
)

func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	return nodetest.Receive(t, what, c)
}
