package storetest

// Servers of each kind: started, frozen, killed and started again.

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// TestServers breaks servers of each kind, and starts them again.
func TestServers(t *testing.T) {
	for _, kind := range []string{docker, process} {
		t.Setenv("STORE_KIND", kind)
		f, err := Open(io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		t.Run(kind, func(t *testing.T) {
			for name, start := range map[string]func(ctx context.Context) ([]*Server, error){
				"postgres": func(ctx context.Context) ([]*Server, error) { s, err := f.StartPostgres(ctx); return []*Server{s}, err },
				"etcd":     func(ctx context.Context) ([]*Server, error) { return f.StartEtcd(ctx, 3) },
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					servers, err := start(t.Context())
					if errors.Is(err, ErrUnavailable) {
						t.Skipf("NOT PROVEN: %s as %s: %v", name, kind, err)
					}
					if err != nil {
						t.Fatal(err)
					}
					endWith(t, servers...)
					breakAll(t, servers)
				})
			}
		})
	}
}

func breakAll(t *testing.T, servers []*Server) {
	ctx := t.Context()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s = %v, want nil", what, err)
		}
	}
	each := func(what string, do func(*Server) error) {
		t.Helper()
		for _, s := range servers {
			must(what, do(s))
		}
	}
	answers := func() bool {
		limit, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		return servers[0].answers(limit, servers[0].Addr)
	}
	each("Freeze", func(s *Server) error { return s.Freeze(ctx) })
	if answers() {
		t.Error("a frozen server answers")
	}
	each("Thaw", func(s *Server) error { return s.Thaw(ctx) })
	each("Ready", func(s *Server) error { return s.Ready(ctx) })
	each("Freeze", func(s *Server) error { return s.Freeze(ctx) })
	each("Kill of a frozen server", func(s *Server) error { return s.Kill(ctx) })
	if answers() {
		t.Error("a dead server answers")
	}
	if err := servers[0].Ready(ctx); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("Ready of a dead server = %v, want that it ended", err)
	}
	each("Restart", func(s *Server) error { return s.Restart(ctx) })
	each("Ready", func(s *Server) error { return s.Ready(ctx) })
	each("Kill", func(s *Server) error { return s.Kill(ctx) })
}

// TestUnavailable: what is demanded and not there is an error that says so, and a kind that nobody knows is one, too.
func TestUnavailable(t *testing.T) {
	t.Setenv("STORE_KIND", byUser)
	f, err := Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.StartEtcd(t.Context(), 1); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "not ours") {
		t.Errorf("StartEtcd of given servers = %v, want ErrUnavailable, and why", err)
	}
	t.Setenv("STORE_KIND", "dokcer")
	if _, err := Open(nil); err == nil || !strings.Contains(err.Error(), "allowed are given, docker, process") {
		t.Errorf("Open with STORE_KIND=dokcer = %v, want what is allowed", err)
	}
}
