// Tests what the Node makes of the client's errors, and of its addresses.
package rueidisnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

var (
	errDial  = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	errReset = &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	errSlow  = &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
)

func TestBrokenIsNotADialError(t *testing.T) {
	for err, broken := range map[error]bool{
		errReset: true, io.EOF: true, io.ErrUnexpectedEOF: true, net.ErrClosed: true,
		errDial: false, errSlow: false, errLost: false, context.Canceled: false,
	} {
		if got := isBroken(fmt.Errorf("greeting: %w", err)); got != broken {
			t.Errorf("isBroken(%v) = %v, want %v", err, got, broken)
		}
	}
}

// The contexts that the client has are ours: what it says of their ends is a time-out of ours, or the
// caller's own reason.
func TestEndsOfOurContexts(t *testing.T) {
	cause := errors.New("enough")
	left, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for _, c := range []struct {
		ctx context.Context
		err error
		as  error
	}{
		{t.Context(), context.DeadlineExceeded, timeup.Err},
		{t.Context(), context.Canceled, timeup.Err},
		{t.Context(), errSlow, timeup.Err},
		{left, context.Canceled, cause},
		{left, io.EOF, io.EOF},
	} {
		if got := dialError(c.ctx, c.err); got != c.as {
			t.Errorf("dialError(%v) = %v, want %v", c.err, got, c.as)
		}
		want := c.as
		if want == cause {
			want = timeup.Err
		}
		got := lost(c.err)
		if !errors.Is(got, want) || errors.Is(got, errLost) != (want == io.EOF) || errors.Is(got, context.Canceled) {
			t.Errorf("lost(%v) = %v, want %v", c.err, got, want)
		}
	}
}

// What a cluster's client brings in the place of a reply: whether the command may have been sent, and why.
func TestRoutedErrors(t *testing.T) {
	n := shared(t)
	cause := errors.New("enough")
	left, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for _, c := range []struct {
		ctx  context.Context
		due  time.Time
		err  error
		kind error
		is   error
		not  error
	}{
		{t.Context(), soon(), errDial, strategy.ErrUnsent, errDial, errLost},
		{t.Context(), soon(), rueidis.ErrNoSlot, strategy.ErrUnsent, rueidis.ErrNoSlot, errLost},
		{left, soon(), errDial, strategy.ErrUnsent, errDial, errLost},
		{t.Context(), soon(), fmt.Errorf("credentials: %w", errDial), strategy.ErrUnknown, errLost, cause},
		{t.Context(), soon(), errReset, strategy.ErrUnknown, errLost, cause},
		{t.Context(), soon(), io.EOF, strategy.ErrUnknown, errLost, cause},
		{t.Context(), soon(), context.DeadlineExceeded, strategy.ErrUnknown, os.ErrDeadlineExceeded, context.DeadlineExceeded},
		{left, soon(), context.Canceled, strategy.ErrUnknown, cause, os.ErrDeadlineExceeded},
		{t.Context(), time.Now(), io.EOF, strategy.ErrUnknown, os.ErrDeadlineExceeded, errLost},
	} {
		_, err := n.routed(c.ctx, c.due, rueidis.NewErrorResult(c.err))
		want(t, c.err.Error(), err, c.kind, c.is)
		if errors.Is(err, c.not) || strings.Contains(err.Error(), "%!") {
			t.Errorf("%v became %v, want no %v", c.err, err, c.not)
		}
	}
}

// A listing is a client that knows its servers, and nothing else.
type listing struct {
	rueidis.Client
	mode  rueidis.ClientMode
	addrs []string
}

func (l listing) Mode() rueidis.ClientMode { return l.mode }

func (l listing) Nodes() map[string]rueidis.Client {
	nodes := map[string]rueidis.Client{}
	for _, a := range l.addrs {
		nodes[a] = nil
	}
	return nodes
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		mode  rueidis.ClientMode
		addrs []string
		name  string
	}{
		{rueidis.ClientModeStandalone, []string{"a:1"}, "a:1"},
		{rueidis.ClientModeStandalone, []string{"a:1", "b:1"}, driver.Unnamed},
		{rueidis.ClientModeStandalone, nil, driver.Unnamed},
		{rueidis.ClientModeSentinel, []string{"a:1"}, driver.Unnamed},
		{rueidis.ClientModeCluster, []string{"b:1", "a:1"}, "cluster of a:1"},
		{rueidis.ClientModeCluster, []string{"a:1"}, "cluster of a:1"},
		{rueidis.ClientModeCluster, nil, driver.Unnamed},
	} {
		n := New(listing{mode: c.mode, addrs: c.addrs})
		if n.Name() != c.name || n.Ordered() != (c.mode != rueidis.ClientModeCluster) {
			t.Errorf("%s of %v: Name() = %s, Ordered() = %v, want %s", c.mode, c.addrs, n.Name(), n.Ordered(), c.name)
		}
	}
}
