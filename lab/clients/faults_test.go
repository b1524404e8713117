// Package clients plays rows of docs/learn/faults.md with contenders on other clients than redigo.
package clients

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/rueidis"

	goredisnode "github.com/lockstrategies/locks/clients/goredis"
	rueidisnode "github.com/lockstrategies/locks/clients/rueidis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
	"github.com/lockstrategies/locks/lab/faults"
)

var whole = flag.Bool("all", false, "play all rows of docs/learn/faults.md on all variants, not only some rows on two strategies")

func TestMain(m *testing.M) {
	redis.SetLogger(&logging.VoidLogger{}) // it reports each connection that a play breaks
	redistest.Main(storetest.Tests{M: m})
}

// owning is a node that closes its client.
type owning struct {
	driver.Node
	close func() error
}

func (o owning) Close() error { return errors.Join(o.Node.Close(), o.close()) }

// A dialer makes a contender's node: its network is the link.
type dialer func(*rig.Link) (driver.Node, error)

func dialGoRedis(l *rig.Link) (driver.Node, error) {
	o, err := redis.ParseURL(l.URL())
	if err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled = true
	client := redis.NewClient(o)
	n := goredisnode.New(client)
	return owning{n, client.Close}, nil
}

func dialRueidis(l *rig.Link) (driver.Node, error) { return dialRueidisAs(l, "") }

func dialRueidisAs(l *rig.Link, user string) (driver.Node, error) {
	o, err := rueidis.ParseURL(l.URL())
	if err != nil {
		return nil, err
	}
	if user != "" {
		o.Username, o.Password = user, user
	}
	o.ReadBufferEachConn, o.WriteBufferEachConn, o.RingScaleEachConn = 4<<10, 4<<10, 6 // there are many
	o.PipelineMultiplex = 2
	o.ForceSingleClient = true
	o.Dialer.Timeout = 2 * time.Second
	client, err := rueidis.NewClient(o)
	if client == nil {
		return nil, err
	}
	n := rueidisnode.New(client)
	return owning{n, func() error { client.Close(); return nil }}, nil
}

// dialOrderless makes a node of a user who may not kill connections, so the node keeps no order.
func dialOrderless(l *rig.Link) (_ driver.Node, err error) {
	const user = "orderless"
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	due, _ := ctx.Deadline()
	operator, err := dialRueidis(l)
	if err != nil {
		return nil, err
	}
	_, err = operator.Do(ctx, due, "ACL", "SETUSER", user, "on", ">"+user, "~*", "&*", "+@all", "-client|kill")
	if err = errors.Join(err, operator.Close()); err != nil {
		return nil, err
	}
	n, err := dialRueidisAs(l, user)
	if err != nil {
		return nil, err
	}
	if _, err = n.Do(ctx, due, "PING", "who?"); err == nil && n.Ordered() {
		err = fmt.Errorf("the node of %s keeps order, want none", user)
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// TestGoRedis and its siblings hold contenders on the client to the verdicts of docs/learn/faults.md.
func TestGoRedis(t *testing.T) {
	play(t, dialGoRedis, *whole, map[string]map[string]faults.Verdict{
		// Before A's first request go the round trips of a greeting. So of five extensions that
		// cannot get through, the last ends when the lease has lapsed, and not just before.
		"slow network": {"setnxgetset-watch": faults.Detected},
	})
}

func TestRueidis(t *testing.T) { play(t, dialRueidis, *whole, nil) }

// TestRueidisWithoutOrder says what the missing order costs, where an acquire may come after its undo: none of the verdicts.
func TestRueidisWithoutOrder(t *testing.T) { play(t, dialOrderless, false, nil) }

// rows are those of a short run. The client matters there: answers are lost, late or refused, and connections end.
var rows = []string{
	"restart, append-only file",
	"server frozen for a moment",
	"server frozen past the TTL",
	"thaw with a request in the socket",
	"SCRIPT FLUSH",
	"primary turned into a replica",
	"acquire: request lost",
	"acquire: reply lost",
	"acquire: request late",
	"acquire: reply late",
	"extend: reply lost",
	"release: reply lost, and repeated when another holds it",
	"half-open connection",
	"connections reset",
	"CLIENT KILL, again and again",
	"server hears, and cannot answer",
	"acquire cancelled",
}

// columns are the strategies of a short run: the one that uses most of a node, and the plainest.
// What the others would add is about themselves, not about the client: lab/faults plays them.
var columns = []string{"fairqueue", "setnxpx"}

// play plays these rows on these strategies, or all rows on all variants. Elsewhere, by row and column, are
// the verdicts that differ from the matrix.
func play(t *testing.T, dial dialer, all bool, elsewhere map[string]map[string]faults.Verdict) {
	for _, name := range rows {
		if !slices.ContainsFunc(faults.All(), func(f faults.Fault) bool { return f.Name == name }) {
			t.Errorf("no row is called %q", name)
		}
	}
	theatre := faults.Open(redistest.ForTests(t))
	theatre.Dial = dial
	t.Cleanup(func() {
		if err := theatre.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, f := range faults.All() {
		if strings.HasPrefix(f.Name, "holder paused") || f.Name == "pool exhausted" {
			continue // in a process of its own, on redigo; of redigo's pool
		}
		if !all && !slices.Contains(rows, f.Name) {
			continue
		}
		for _, c := range faults.Columns() {
			cell, told := f.Cell(c)
			if cell.Derived || !told || !all && !slices.Contains(columns, c.Name) {
				continue
			}
			want, other := elsewhere[f.Name][c.Name]
			if !other {
				want = cell.Verdict
			}
			t.Run(f.Name+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				what := "what becomes of " + c.Name + " in this row"
				redistest.Skip(t, theatre.Ready(t.Context(), f, c), what)
				out := theatre.See(t.Context(), f, c, want)
				if errors.Is(out.Err, redistest.ErrImpossible) {
					redistest.Skip(t, out.Err, what)
				}
				if out.Err != nil || out.Verdict != want {
					t.Errorf("%v, want %v: %s\n%v", out, want, cell.Reason, out.History())
				}
			})
		}
	}
}
