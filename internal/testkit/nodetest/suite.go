package nodetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
)

// A Subject is one way to make a [driver.Node].
type Subject struct {
	// Open makes a Node, and a client for it. Both end with the test.
	Open func(t *testing.T, o Options) driver.Node

	// Connect makes a Node of a server in memory, in a bubble: see InMemory. Both end with the test.
	Connect func(t *testing.T, f *Server) driver.Node

	// Protocols are the versions of RESP that the client speaks. None: 2.
	Protocols []int

	// Ordered is what Node.Ordered says where the server forbids nothing.
	Ordered bool

	// Lost is in what a subscription hears last when its connection has ended.
	Lost string

	// Subscriber keeps the Node's subscriptions.
	Subscriber func(n driver.Node) *subscription.Subscriber

	// Noticed reports whether the Node's reader has met the end of the connection for requests. nil: nothing reads that
	// at rest, and each call looks at the socket.
	Noticed func(n driver.Node) bool

	// Reads: a goroutine of the Node stays with a connection at rest.
	Reads bool

	// Farewells: the client passes on what a server says before it hangs up on a new connection.
	Farewells bool

	// Crashes: a reply of a length that no memory has ends the process, by a panic of the client's own goroutine.
	Crashes bool

	// Package is where the Node's own code is, by which its goroutines are known.
	Package string
}

// Options are of one Node.
type Options struct {
	URL      string // redis://…, with what it takes to log in
	Protocol int    // the version of RESP; 0: the client's own choice

	// PingEvery is how soon a connection for subscriptions is asked whether it lives, and
	// PongLimit how long that may take. Zero: as usual.
	PingEvery, PongLimit time.Duration
}

// properties are what every Node has, by the name of the subtest.
var properties = map[string]func(t *testing.T, s Subject){
	"RepliesAreOfTheContractsTypes":  repliesAreOfTheContractsTypes,
	"ErrorRepliesAreOfTheirKind":     errorRepliesAreOfTheirKind,
	"NobodyThere":                    nobodyThere,
	"NoScriptIsInvisible":            noScriptIsInvisible,
	"CancellationsMixNothingUp":      cancellationsMixNothingUp,
	"RightsThatAreMissing":           rightsThatAreMissing,
	"ServerKilledAndRestarted":       serverKilledAndRestarted,
	"ClosedRefuses":                  closedRefuses,
	"SharedUntilTheLastIsClosed":     sharedUntilTheLastIsClosed,
	"SessionKeepsTransactions":       sessionKeepsTransactions,
	"SessionTellsErrorsAmongReplies": sessionTellsErrorsAmongReplies,
	"SessionEndsWithItsContext":      sessionEndsWithItsContext,
	"SessionPassesOverTheDead":       sessionPassesOverTheDead,
	"SubscriptionHearsItsChannel":    subscriptionHearsItsChannel,
	"SubscriptionChurn":              subscriptionChurn,
	"BrokenSubscriptionEndsOnce":     brokenSubscriptionEndsOnce,
	"SilentSubscriptionEnds":         silentSubscriptionEnds,
	"FrozenServerEndsSubscriptions":  frozenServerEndsSubscriptions,
	"SubscribeIsBoundedByItsContext": subscribeIsBoundedByItsContext,
	"SubscribeIsRefused":             subscribeIsRefused,
	"SubscribeToADeadServer":         subscribeToADeadServer,
	"SubscribeWhereOneRests":         subscribeWhereOneIsIdle,
	"SubscribeAfterADeathAtRest":     subscribeAfterADeathAtRest,
	"ProbeTellsOfAReturn":            probeTellsOfAReturn,
	"StopWaitsForFn":                 stopWaitsForFn,
}

// Run checks all properties on s, each in a subtest of its own.
func Run(t *testing.T, s Subject) {
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			properties[name](t, s)
		})
	}
}

func (s Subject) protocols() []int {
	if len(s.Protocols) == 0 {
		return []int{2}
	}
	return s.Protocols
}

// newest is the protocol that a client speaks unless an option says otherwise.
func (s Subject) newest() int { return slices.Max(s.protocols()) }

// each runs a test once for each protocol of the subject.
func (s Subject) each(t *testing.T, test func(t *testing.T, protocol int)) {
	for _, protocol := range s.protocols() {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			t.Parallel()
			test(t, protocol)
		})
	}
}

// on is a Node of a fake server, which speaks the protocol.
func (s Subject) on(t *testing.T, protocol int, serve func(c *Conn, cmd []string)) (driver.Node, *Server) {
	t.Helper()
	f := NewServer(t, serve)
	f.Protocol = protocol
	return s.Open(t, Options{URL: f.URL(), Protocol: protocol}), f
}

// exclusive is a Node of a real server, which the test has for itself.
func (s Subject) exclusive(t *testing.T) (driver.Node, *redistest.Server) {
	t.Helper()
	srv := redistest.Own(t, redistest.Config{})
	return s.Open(t, Options{URL: srv.URL()}), srv
}

func (s Subject) shared(t *testing.T) driver.Node {
	t.Helper()
	return s.Open(t, Options{URL: redistest.Shared(t).URL()})
}

// rest waits until the connection for subscriptions is at rest.
func (s Subject) rest(t *testing.T, n driver.Node) {
	t.Helper()
	verdict.Eventually(t, "the connection is at rest", func() bool { return AtRest(s.Subscriber(n)) })
}

// AtRest reports whether the connection for subscriptions is there, and all of them are taken back.
func AtRest(s *subscription.Subscriber) bool {
	all, rest := s.Connections()
	return all == 1 && rest == 1
}

// Heard collects what a subscription hears.
type Heard struct {
	Msgs chan string
	Ends chan error
}

// Silent reports whether there is nothing left to hear.
func (h Heard) Silent() bool { return len(h.Msgs) == 0 && len(h.Ends) == 0 }

// Subscribe subscribes to a channel.
func Subscribe(t testing.TB, n driver.Node, channel string) (Heard, func()) {
	t.Helper()
	h := Heard{make(chan string, 100), make(chan error, 100)}
	stop, err := n.Subscribe(t.Context(), channel, func(msg []byte, err error) {
		if err != nil {
			h.Ends <- err
			return
		}
		h.Msgs <- string(msg)
	})
	if err != nil {
		t.Fatalf("Subscribe(%s) = %v", channel, err)
	}
	return h, stop
}

// Publish returns how many have heard it.
func Publish(t testing.TB, n driver.Node, channel, msg string) int64 {
	t.Helper()
	r, err := n.Do(t.Context(), Soon(), "PUBLISH", channel, msg)
	if err != nil {
		t.Fatalf("PUBLISH = %v", err)
	}
	return r.(int64)
}

// hears fails the test unless that message comes next.
func (h Heard) hears(t *testing.T, msg string) {
	t.Helper()
	if got := Receive(t, "a message", h.Msgs); got != msg {
		t.Errorf("heard %q, want %q", got, msg)
	}
}

// never is a callback of a subscription that does not come about.
func never(t *testing.T) func([]byte, error) {
	return func(msg []byte, err error) { t.Errorf("fn was called with %q, %v", msg, err) }
}

// Echo ends the test unless a command gets its own reply.
func Echo(t testing.TB, n driver.Node, text string) {
	t.Helper()
	reply, err := n.Do(t.Context(), Soon(), "ECHO", text)
	if b, ok := reply.([]byte); err != nil || !ok || string(b) != text {
		t.Fatalf("ECHO %s = %q, %v, want %q, nil", text, reply, err, text)
	}
}

// kills is nil for a server that knows CLIENT KILL, which the order of a Node needs that keeps
// one: a real Redis, not an imitation.
func kills(srv *redistest.Server) error {
	c := srv.Pool().Get()
	defer c.Close()
	_, err := c.Do("CLIENT", "KILL", "ID", 1, "ADDR", "0.0.0.0:0")
	return err
}

// wantOrder fails the test unless the Node says what its subject does of the order.
func (s Subject) wantOrder(t *testing.T, n driver.Node) {
	t.Helper()
	if want := s.Ordered && kills(redistest.Shared(t)) == nil; n.Ordered() != want {
		t.Errorf("Ordered = %v, want %v", n.Ordered(), want)
	}
}

// wantWords fails the test unless an error tells them.
func wantWords(t *testing.T, what string, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("%s = %v, want %q in it", what, err, words)
	}
}
