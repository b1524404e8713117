// After Check a server knows the scripts: no client meets with NOSCRIPT at the first lock, nor in any other operation.
package subjects

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

var noScript = regexp.MustCompile(`errorstat_NOSCRIPT:count=(\d+)`)

func TestCheckLoadsTheScripts(t *testing.T) {
	t.Parallel()
	for _, v := range All() {
		if v.Name == "redlock-fenced" { // on one server
			v.Servers, v.On = 1, quorum(redlock.WithFences())
		}
		if v.Servers != 1 || v.Commands != nil {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Own(t, redistest.Config{})
			if srv.Version() == redistest.Imitation {
				t.Skip("NOT PROVEN: that Check loads the scripts: an imitation does not count errors")
			}
			if _, err := Bootstrap(t.Context(), []Variant{v}, []*redistest.Server{srv}); err != nil {
				t.Fatal(err)
			}
			missing := func() (n int) {
				if count := noScript.FindSubmatch(redistest.Do(t, srv, "INFO", "errorstats").([]byte)); count != nil {
					n, _ = strconv.Atoi(string(count[1]))
				}
				return n
			}
			locks := openOn(t, v, srv, strategy.Options{TTL: time.Hour, OpTimeout: time.Minute})
			before := missing()
			if err := locks.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := missing() - before; n > 1 { // it asks whether EVAL is allowed by what is no script
				t.Errorf("NOSCRIPT: %d in Check, want 1 at most", n)
			}
			k, p := &kinds{t, srv}, v.On([]driver.Node{nodeOn(t, srv)})
			before = missing()
			for _, op := range k.operations(v, p) {
				err := op.do(t.Context(), k.claim("a", owner)) // it may be refused: the script has run
				if got := missing(); got != before {
					t.Errorf("NOSCRIPT: %d after %s (%v), want %d as after Check", got, op.name, err, before)
					before = got
				}
			}

			loads := &unloaded{Node: nodeOn(t, srv)}
			locks, err := engine.New(v.On([]driver.Node{loads}), strategy.Options{})
			if err = locktest.Opened(t, locks, err).Check(t.Context()); loads.asked && !errors.Is(err, strategy.ErrUnsent) {
				t.Errorf("Check() where the server is away when it is to load the scripts = %v, want %v", err, strategy.ErrUnsent)
			}
		})
	}
}

// unloaded is a node whose server is away when it is to load a script.
type unloaded struct {
	driver.Node
	asked bool
}

func (n *unloaded) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
	if cmd != "SCRIPT" {
		return n.Node.Do(ctx, due, cmd, key, args...)
	}
	n.asked = true
	return nil, &strategy.ServerError{Node: n.Name(), Kind: strategy.ErrUnsent}
}
