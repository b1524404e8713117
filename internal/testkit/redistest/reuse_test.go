package redistest

// A server that a test has owned serves another test only as it was at its start.

import (
	"context"
	"testing"

	"github.com/gomodule/redigo/redis"
)

func TestReuse(t *testing.T) {
	eachKind(t, func(t *testing.T, f *Farm) {
		if f.Kind() == Embedded {
			t.Skip("an embedded server starts as fast as it is examined")
		}
		f = openNew(t, f.Kind())
		use := func(c Config, spoil func(*Server)) (run string) {
			t.Helper()
			s, err := f.startFor(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if keys, err := redis.Int(s.do(t.Context(), "DBSIZE")); err != nil || keys != 0 {
				t.Errorf("DBSIZE of a server of one's own = %d, %v, want 0", keys, err)
			}
			if calls, err := s.Calls(t.Context()); err != nil || calls["set"] != 0 {
				t.Errorf("a server of one's own has executed %v, %v, want no SET", calls, err)
			}
			do(t, s, "SET", "k", "v")
			spoil(s)
			if err := f.giveBack(t.Context(), s, c); err != nil {
				t.Fatal(err)
			}
			if err := s.Kill(t.Context()); err == nil {
				t.Error("Kill of a server that was given back = nil, want an error")
			}
			return s.run
		}
		reused := func(first string) bool { return use(Config{}, func(*Server) {}) == first }

		if !reused(use(Config{}, func(*Server) {})) {
			t.Error("a server that has kept its state does not serve again")
		}
		guarded := use(Config{Password: "x"}, func(*Server) {})
		if use(Config{Password: "x"}, func(*Server) {}) == guarded {
			t.Error("a server with a Config serves again")
		}
		for what, spoil := range map[string]func(*Server){
			"was killed":   func(s *Server) { must(t, f, s.Kill(t.Context())) },
			"was frozen":   func(s *Server) { must(t, f, s.Freeze(t.Context())) },
			"has settings": func(s *Server) { do(t, s, "CONFIG", "SET", "maxmemory", "1gb") },
			"has reset its counts": func(s *Server) {
				do(t, s, "CONFIG", "SET", "maxmemory", "1gb")
				do(t, s, "CONFIG", "RESETSTAT")
			},
			"has a user": func(s *Server) { do(t, s, "ACL", "SETUSER", "me", "on", "nopass") },
			"is connected": func(s *Server) {
				c, err := s.dial(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				if _, err := c.Do("PING"); err != nil {
					t.Fatal(err)
				}
			},
		} {
			if reused(use(Config{}, spoil)) {
				t.Errorf("a server that %s serves again", what)
			}
		}
	})
}
