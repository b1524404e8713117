// Tests what New refuses, and how a client and its servers are named in errors.
package etcd

import (
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstrategies/locks/strategy"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	c := clientOf(t, []string{"127.0.0.1:1"})
	for ttl, ok := range map[time.Duration]bool{
		0: true, time.Second: true, 10 * time.Second: true, 24 * time.Hour: true,
		300 * time.Millisecond: false, 1500 * time.Millisecond: false, time.Minute + time.Millisecond: false,
	} {
		s, err := New(c, strategy.Options{TTL: ttl})
		if (err == nil) != ok {
			t.Errorf("New with a TTL of %v = %v, want an error: %v", ttl, err, !ok)
		}
		if err != nil && !strings.Contains(err.Error(), "whole seconds") {
			t.Errorf("New with a TTL of %v = %v, want what is allowed", ttl, err)
		}
		if err == nil {
			s.Close()
		}
	}
	if _, err := New(c, strategy.Options{Acks: strategy.Acks{Replicas: 1}}); !errors.Is(err, strategy.ErrUnsupported) {
		t.Errorf("New with Acks = %v, want ErrUnsupported", err)
	}
	for _, bad := range []*clientv3.Client{nil, clientv3.NewCtxClient(t.Context())} {
		if _, err := New(bad, strategy.Options{}); err == nil || !strings.Contains(err.Error(), "clientv3.New") {
			t.Errorf("New = %v, want an error that says what is allowed", err)
		}
		if _, err := On(bad).Acquire(t.Context(), claimOf("x", "y")); err == nil {
			t.Error("Acquire on a client that cannot be used = nil, want an error")
		}
	}
}

// TestName: no text shows a password.
func TestName(t *testing.T) {
	t.Parallel()
	c := clientOf(t, []string{"127.0.0.1:1"})
	c.SetEndpoints("http://user:secret@127.0.0.1:1", "127.0.0.1:2", "unix:///tmp/socket", "https://etcd.example:2379")
	p := On(c).(*protocol)
	if got, want := p.name(), "etcd 127.0.0.1:1,127.0.0.1:2,unix:///tmp/socket,etcd.example:2379"; got != want {
		t.Errorf("name() = %q, want %q", got, want)
	}
}

// TestNoServer: a call ends in time, has claimed nothing, and leaves nothing to undo.
func TestNoServer(t *testing.T) {
	t.Parallel()
	p := On(clientOf(t, []string{"127.0.0.1:1"}))
	c := claimOf("x", "y")
	c.Due = time.Now().Add(100 * time.Millisecond)
	if _, err := p.Acquire(t.Context(), c); !errors.Is(err, strategy.ErrUnsent) {
		t.Errorf("Acquire() = %v, want ErrUnsent: there is no server", err)
	}
	for version, want := range map[string]bool{"3.3.27": true, "3.4.0": false, "3.10.1": false, "4.0.0": false, "2.9": true, "3": true, "dev": false} {
		if got := older(version, 3, 4); got != want {
			t.Errorf("older(%q) = %v, want %v", version, got, want)
		}
	}
}
