// Tests what the Node makes of the client's errors. The tests of clients/rueidis are those of this package, too.
package lending

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

	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// nobody is a client that leads nowhere.
type nobody struct{ Client }

func (nobody) Cluster() bool   { return true }
func (nobody) Addrs() []string { return nil }

var (
	errDial   = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	errReset  = &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	errNoSlot = errors.New("no slot")
	errSlow   = &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
)

func TestBrokenIsNotADialError(t *testing.T) {
	for err, broken := range map[error]bool{
		errReset: true, io.EOF: true, io.ErrUnexpectedEOF: true, net.ErrClosed: true,
		errDial: false, errSlow: false, ErrLost: false, context.Canceled: false,
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
		if !errors.Is(got, want) || errors.Is(got, ErrLost) != (want == io.EOF) || errors.Is(got, context.Canceled) {
			t.Errorf("lost(%v) = %v, want %v", c.err, got, want)
		}
	}
}

// What a cluster's client brings in the place of a reply: whether the command may have been sent, and why.
func TestRoutedErrors(t *testing.T) {
	n := New(nobody{})
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
		{t.Context(), nodetest.Soon(), errDial, strategy.ErrUnsent, errDial, ErrLost},
		{t.Context(), nodetest.Soon(), errNoSlot, strategy.ErrUnsent, errNoSlot, ErrLost},
		{left, nodetest.Soon(), errDial, strategy.ErrUnsent, errDial, ErrLost},
		{t.Context(), nodetest.Soon(), fmt.Errorf("credentials: %w", errDial), strategy.ErrUnknown, ErrLost, cause},
		{t.Context(), nodetest.Soon(), errReset, strategy.ErrUnknown, ErrLost, cause},
		{t.Context(), nodetest.Soon(), io.EOF, strategy.ErrUnknown, ErrLost, cause},
		{t.Context(), nodetest.Soon(), context.DeadlineExceeded, strategy.ErrUnknown, os.ErrDeadlineExceeded, context.DeadlineExceeded},
		{left, nodetest.Soon(), context.Canceled, strategy.ErrUnknown, cause, os.ErrDeadlineExceeded},
		{t.Context(), time.Now(), io.EOF, strategy.ErrUnknown, os.ErrDeadlineExceeded, ErrLost},
	} {
		_, err := n.routed(c.ctx, c.due, Reply{Broken: c.err, NoSlot: c.err == errNoSlot})
		nodetest.Want(t, c.err.Error(), err, c.kind, c.is)
		if errors.Is(err, c.not) || strings.Contains(err.Error(), "%!") {
			t.Errorf("%v became %v, want no %v", c.err, err, c.not)
		}
	}
}
