// What the package adds to the suite: what is left behind goes, late requests have no effect, and an error says what to do.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

func TestMigration(t *testing.T) {
	t.Parallel()
	url := ownDatabase(t)
	pool := poolOf(t, url)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { migrate(t, pool) }) // at the same time
	}
	all.Wait()
	s := open(t, pool, long)
	lease := try(t, s.NewLock("a"))
	migrate(t, pool)
	want(t, "Extend after another migration", lease.Extend(t.Context()), nil)
	migrate(t, pool, WithSchema("of two"))
	two := open(t, pool, long, WithSchema("of two"))
	try(t, two.NewLock("a"))
	if strings.Contains(Migration(WithSchema("other")), "locks.") {
		t.Error("the migration of another schema names locks")
	}
}

// TestList: the keys of the locks that are held, whatever their bytes, and none of one that was released or has expired.
func TestList(t *testing.T) {
	t.Parallel()
	url := ownDatabase(t)
	pool := poolOf(t, url)
	migrate(t, pool, WithSchema("of list"))
	list := func(want ...string) {
		t.Helper()
		if got, err := List(t.Context(), pool, WithSchema("of list")); err != nil || !slices.Equal(got, want) {
			t.Errorf("List = %q, %v, want %q", got, err, want)
		}
	}
	list()
	s := open(t, pool, long, WithSchema("of list"))
	try(t, s.NewLock("b"))
	released := try(t, s.NewLock("released"))
	try(t, s.NewLock("\x00\xff"))
	try(t, s.NewLock("expired"))
	run(t, pool, `update "of list".lease set expires = clock_timestamp() where key = $1`, []byte("lock:{expired}"))
	want(t, "Release", released.Release(t.Context()), nil)
	list("lock:{\x00\xff}", "lock:{b}")
	if _, err := List(t.Context(), pool); !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "postgres.Migration") {
		t.Errorf("List without the schema = %v, want ErrRefused, and postgres.Migration", err)
	}
	if _, err := List(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "allowed") {
		t.Errorf("List without a pool = %v, want what is allowed", err)
	}
}

// TestMissingSchema: nothing makes the schema but a migration, and each error names it.
func TestMissingSchema(t *testing.T) {
	t.Parallel()
	url := ownDatabase(t)
	pool := poolOf(t, url)
	s := open(t, pool, long)
	says := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "postgres.Migration") {
			t.Errorf("%s = %v, want ErrRefused, and postgres.Migration", what, err)
		}
	}
	says("Check", s.Check(t.Context()))
	_, err := s.NewLock("a").Acquire(t.Context())
	says("Acquire", err)
	migrate(t, pool)
	lease := try(t, s.NewLock("a"))
	run(t, pool, "drop function locks.acquire_1, locks.check_1") // as if the schema were older
	_, err = s.NewLock("b").TryAcquire(t.Context())
	says("TryAcquire", err)
	says("CheckTx", CheckTx(t.Context(), begin(t, pool), lease))
}

// TestRights: Check names what the role lacks.
func TestRights(t *testing.T) {
	t.Parallel()
	url := ownDatabase(t)
	owner := poolOf(t, url)
	migrate(t, owner)
	role := strings.ReplaceAll(testChannel(), "test", "role")
	run(t, owner, "create role "+role)
	t.Cleanup(func() {
		run(t, owner, "drop owned by "+role)
		run(t, owner, "drop role "+role)
	})
	pool := poolOf(t, url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["role"] = role })
	s := open(t, pool, long)
	for _, step := range []struct{ lacks, grant string }{
		{"may not use the schema locks", "grant usage on schema locks to " + role},
		{"permission denied", "grant select on locks.lease, locks.queue to " + role},
		{"insert on lease", "grant select, insert, update, delete on all tables in schema locks to " + role},
		{"update on fence", "grant usage, update on all sequences in schema locks to " + role},
	} {
		if err := s.Check(t.Context()); !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), step.lacks) {
			t.Errorf("Check = %v, want %q", err, step.lacks)
		}
		run(t, owner, step.grant)
	}
	want(t, "Check", s.Check(t.Context()), nil)
	lease := try(t, s.NewLock("a"))
	want(t, "CheckTx", CheckTx(t.Context(), begin(t, pool), lease), nil)
}

// TestIsolation: a step that does not see what others have just done is refused. A check may be of any isolation.
func TestIsolation(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	for _, level := range []string{"repeatable read", "serializable"} {
		strict := migrated(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level })
		s := open(t, strict, long)
		_, err := s.NewLock(unique(t)).TryAcquire(t.Context())
		if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "read committed") {
			t.Errorf("TryAcquire with %s = %v, want ErrRefused, and what is allowed", level, err)
		}
		want(t, "Check", s.Check(t.Context()), strategy.ErrRefused)
		lease := try(t, open(t, pool, long).NewLock(unique(t)))
		tx := begin(t, strict)
		want(t, "CheckTx", CheckTx(t.Context(), tx, lease), nil)
		want(t, "Extend", lease.Extend(t.Context()), nil)
		want(t, "CheckTx", CheckTx(t.Context(), tx, lease), nil)
	}
}

// TestSweep: acquires of other locks delete what the dead have left, and nothing else.
func TestSweep(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, ownDatabase(t))
	migrate(t, pool)
	run(t, pool, `insert into locks.lease select ('dead'||n)::bytea, 't', clock_timestamp() - interval '1 hour', 256 from generate_series(1, 200) n`)
	run(t, pool, `insert into locks.queue (key, token, listener, channel, ttl, numbers) select ('dead'||n)::bytea, 't', n, 'c', 1, 1 from generate_series(1, 200) n`)
	run(t, pool, `insert into locks.undone select ('t'||n)::bytea, clock_timestamp() - interval '1 hour' from generate_series(1, 200) n`)
	run(t, pool, `insert into locks.undone values ('new', clock_timestamp() + interval '1 hour')`)
	s := open(t, pool, long, WithSynchronousCommit("off"))
	held := try(t, s.NewLock("held"))
	verdict.Eventually(t, "what the dead have left is deleted", func() bool {
		for range 2 * sweepEvery {
			want(t, "Release", try(t, s.NewLock("a")).Release(t.Context()), nil)
		}
		return value[int](t, pool, `select (select count(*) from locks.lease) + (select count(*) from locks.queue) + (select count(*) from locks.undone)`) == 2
	})
	want(t, "Extend", held.Extend(t.Context()), nil)
}

// TestSweepWaitsForNobody: an acquire that sweeps and then has to wait keeps no row of another lock meanwhile.
func TestSweepWaitsForNobody(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, ownDatabase(t))
	migrate(t, pool)
	run(t, pool, `insert into locks.lease select key::bytea, 't', clock_timestamp() - interval '1 hour', 256 from unnest(array['a', 'b']) key`)
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), `select from locks.lease where key = 'a' for update`); err != nil {
		t.Fatal(err)
	}
	o := long
	o.Key = func(name string) string { return name }
	waits := make(chan error, 1)
	go func() {
		_, err := open(t, pool, o).NewLock("a").TryAcquire(t.Context()) // the first of a process sweeps
		waits <- err
	}()
	verdict.Eventually(t, "the acquire waits for the row", func() bool {
		return value[int](t, pool, `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) == 1
	})
	_, err := open(t, pool, o).NewLock("b").TryAcquire(t.Context())
	want(t, "TryAcquire of the other lock", err, nil)
	want(t, "Rollback", tx.Rollback(t.Context()), nil)
	want(t, "TryAcquire that waited", <-waits, nil)
}

// TestDeadWaiterIsPassedOver: its connection to listen has ended, and the lock goes to the next at once.
func TestDeadWaiterIsPassedOver(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, ownDatabase(t)) // where nobody else sweeps
	migrate(t, pool)
	l, other := open(t, pool, long).NewLock("a"), open(t, pool, long).NewLock("a")
	lease := try(t, l)
	_, err := other.TryAcquire(t.Context())
	want(t, "TryAcquire", err, strategy.ErrHeld)
	run(t, pool, `insert into locks.queue (key, token, listener, channel, ttl, numbers) values ($1, 'dead', 42, 'nobody', 3600000, 1)`, []byte(l.Key()))
	acquired := make(chan error, 1)
	go func() {
		_, err := other.Acquire(t.Context())
		acquired <- err
	}()
	verdict.Eventually(t, "both queue", func() bool {
		return value[int](t, pool, "select count(*) from locks.queue where key = $1", []byte(l.Key())) == 2
	})
	want(t, "Release", lease.Release(t.Context()), nil)
	want(t, "Acquire", <-acquired, nil)
}

// TestLateRequest: once an undo has been answered, a request of its claim that arrives later has no effect.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	p := newProtocol(migrated(t), settingsOf(nil))
	defer p.Close()
	ctx, due := t.Context(), time.Now().Add(time.Minute)
	c := driver.Claim{Name: "late", Key: unique(t), Token: unique(t), TTL: time.Minute, Due: due}
	want(t, "Undo", p.Undo(ctx, c), nil)
	_, err := p.Acquire(ctx, c)
	want(t, "Acquire after the undo", err, strategy.ErrRefused)
	other := c
	other.Token = unique(t)
	g, err := p.Acquire(ctx, other)
	want(t, "Acquire of another", err, nil)
	_, err = p.Adopt(ctx, c, other.Token)
	want(t, "Adopt after the undo", err, strategy.ErrRefused)
	c.Line = "line"
	_, err = p.Pass(ctx, other, c)
	want(t, "Pass to it after the undo", err, strategy.ErrRefused)
	other.Grant = g
	_, err = p.Extend(ctx, other)
	want(t, "Extend of the other", err, nil)
	want(t, "Undo of the other", p.Undo(ctx, other), nil)
	info, err := p.Inspect(ctx, c)
	if err != nil || info.Held {
		t.Errorf("Inspect = %+v, %v, want a free lock", info, err)
	}
}

// TestStuckStep: a step that others keep waiting ends in the server before its caller leaves, and has no effect.
func TestStuckStep(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s := open(t, pool, strategy.Options{TTL: time.Minute, OpTimeout: 400 * time.Millisecond})
	l := s.NewLock(unique(t))
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), "select pg_advisory_xact_lock($1)", newNames(defaultSchema).of(l.Key()).slot); err != nil {
		t.Fatal(err)
	}
	_, err := l.TryAcquire(t.Context())
	refused := errors.Is(err, strategy.ErrRefused) && strings.Contains(err.Error(), "kept this one waiting")
	if !refused && !errors.Is(err, strategy.ErrUnknown) { // unknown: on a slow machine
		t.Errorf("TryAcquire = %v, want ErrRefused, and why", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := l.TryAcquire(ctx)
		ended <- err
	}()
	cancel()
	if err := <-ended; err == nil || errors.Is(err, strategy.ErrHeld) {
		t.Errorf("TryAcquire that is called off = %v, want an error that claims nothing", err)
	}
	want(t, "Rollback", tx.Rollback(t.Context()), nil)
	verdict.Eventually(t, "the lock is free", func() bool {
		lease, err := l.TryAcquire(t.Context())
		return err == nil && lease.Release(t.Context()) == nil
	})
}

// TestBusyPool: without a free connection nothing is sent.
func TestBusyPool(t *testing.T) {
	t.Parallel()
	pool := migrated(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	s := open(t, pool, strategy.Options{TTL: time.Minute, OpTimeout: 50 * time.Millisecond})
	begin(t, pool)
	_, err := s.NewLock(unique(t)).TryAcquire(t.Context())
	want(t, "TryAcquire", err, strategy.ErrUnsent)
}

// TestFaults: New says what is allowed, and so does each call on a protocol that New has not seen.
func TestFaults(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, "postgres://nobody@127.0.0.1:1/none")
	for name, open := range map[string]func() (strategy.Strategy, error){
		"a nil pool":            func() (strategy.Strategy, error) { return New(nil, long) },
		"a nil option":          func() (strategy.Strategy, error) { return New(pool, long, nil) },
		"no schema":             func() (strategy.Strategy, error) { return New(pool, long, WithSchema("")) },
		"a long schema":         func() (strategy.Strategy, error) { return New(pool, long, WithSchema(strings.Repeat("x", 64))) },
		"a nil listener":        func() (strategy.Strategy, error) { return New(pool, long, WithListener(nil)) },
		"an unknown durability": func() (strategy.Strategy, error) { return New(pool, long, WithSynchronousCommit("maybe")) },
	} {
		if s, err := open(); s != nil || err == nil || !strings.Contains(err.Error(), "allowed") {
			t.Errorf("New with %s = %v, %v, want an error that says what is allowed", name, s, err)
		}
	}
	_, err := New(pool, strategy.Options{Acks: strategy.Acks{Replicas: 1}})
	want(t, "New with Acks", err, strategy.ErrUnsupported)
	p := On(nil)
	_, err = p.Acquire(t.Context(), driver.Claim{TTL: time.Second})
	if err == nil || !strings.Contains(err.Error(), "allowed") {
		t.Errorf("Acquire without a pool = %v, want what is allowed", err)
	}
	if err := Migrate(t.Context(), nil, WithSchema("")); err == nil || !strings.Contains(err.Error(), "allowed") {
		t.Errorf("Migrate without a schema = %v, want what is allowed", err)
	}
}

// TestDiscreet: no error shows a password or a whole token.
func TestDiscreet(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2"
	s := open(t, poolOf(t, "postgres://nobody:"+secret+"@127.0.0.1:1/none?connect_timeout=5"), strategy.Options{OpTimeout: time.Second})
	_, err := s.NewLock("a").TryAcquire(t.Context())
	want(t, "TryAcquire without a server", err, strategy.ErrUnsent)
	if strings.Contains(err.Error(), secret) {
		t.Errorf("TryAcquire = %v: it shows the password", err)
	}
	want(t, "Check without a server", s.Check(t.Context()), strategy.ErrUnsent)

	pool := migrated(t)
	a, b := open(t, pool, long), open(t, pool, long)
	lease := try(t, a.NewLock(unique(t)))
	_, err = b.NewLock(lease.Name()).TryAcquire(t.Context())
	if strings.Contains(err.Error(), lease.Token()) {
		t.Errorf("TryAcquire = %v: it shows the token", err)
	}
	lost := b.ForceRelease(t.Context(), strategy.Info{Name: lease.Name(), Held: true, Token: "other"})
	if !errors.Is(lost, strategy.ErrLost) || strings.Contains(lost.Error(), lease.Token()) {
		t.Errorf("ForceRelease = %v, want ErrLost without the token", lost)
	}
}

// TestGarbage: what no step returns is neither a grant, nor held, nor lost.
func TestGarbage(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, ownDatabase(t))
	migrate(t, pool)
	p := newProtocol(pool, settingsOf(nil))
	defer p.Close()
	// Each step becomes one that sets some of its replies, or returns no row.
	for step, bodies := range map[string][]string{
		"acquire": {"null", "granted := true; clock := 1", "granted := true; fence := 256", "granted := false; clock := 1; holder := 'h'; at := 0; kept := false",
			"raise 'server conn crashed?' using errcode = '08P01'"}, // as a pooler says it, perhaps after the commit
		"pass":    {"null", "lost := false; granted := true; clock := 1"},
		"release": {"null"},
		"extend":  {"null", "n := 1; return next; return next", "n := 1; kept := true; return next; n := 2; return next"},
		"adopt":   {"null", "adopted := true"},
		"inspect": {"holder := 'h'", "holder := 'h'; left_us := 1"},
	} {
		for _, body := range bodies {
			definition := value[string](t, pool, "select pg_get_functiondef(to_regproc('locks."+step+"_1'))")
			head, _, _ := strings.Cut(definition, "AS $function$")
			run(t, pool, head+"AS $function$ begin null; "+body+"; end $function$")
			c := driver.Claim{Name: "a", Key: "a", Token: "t", TTL: time.Second, Due: time.Now().Add(time.Minute)}
			var err error
			switch step {
			case "acquire":
				_, err = p.Acquire(t.Context(), c)
			case "pass":
				_, err = p.Pass(t.Context(), c, c)
			case "release":
				_, err = p.Release(t.Context(), c)
			case "extend":
				_, err = p.Extend(t.Context(), c)
			case "adopt":
				_, err = p.Adopt(t.Context(), c, "from")
			case "inspect":
				_, err = p.Inspect(t.Context(), c)
			}
			want(t, step+" that does "+body, err, strategy.ErrUnknown)
		}
	}
}

// TestProbe: a server that is gone and comes back is noticed.
func TestProbe(t *testing.T) {
	t.Parallel()
	p := newProtocol(migrated(t), settingsOf(nil))
	defer p.Close()
	first := p.Probe(t.Context(), time.Now().Add(time.Minute))
	if again := p.Probe(t.Context(), time.Now().Add(time.Minute)); again != first {
		t.Errorf("Probe = %d after %d, want no change", again, first)
	}
	p.Probe(t.Context(), time.Now()) // too short for an answer
	if back := p.Probe(t.Context(), time.Now().Add(time.Minute)); back != first+1 {
		t.Errorf("Probe = %d after %d and no answer, want one more", back, first)
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	grant := driver.Notification{Token: "t", Grant: driver.Grant{Fence: 512, Fences: 3, TTL: time.Second, ServerTime: 1_000_001 * time.Microsecond}}
	for msg, want := range map[string]driver.Notification{
		"grant 512 3 1000 1000001 74": grant,
		"next 50":                     {Next: 50 * time.Millisecond},
	} {
		if got, ok := readLine(msg); !ok || got != want {
			t.Errorf("readLine(%q) = %+v, %v, want %+v", msg, got, ok, want)
		}
	}
	for _, msg := range []string{
		"", "x", "next", "next 0", "next -1", "next x", "next 1 2", "next 99999999999999", "grant", "grant 512 3 1000 1000001",
		"grant 512 3 1000 1000001 ", "grant 512 3 1000 1000001 7", "grant 513 3 1000 1000001 74", "grant 0 3 1000 1000001 74",
		"grant 9223372036854775807 3 1000 1000001 74", "grant 512 257 1000 1000001 74", "grant 512 3 0 1000001 74", "grant 512 3 1000 x 74",
	} {
		if got, ok := readLine(msg); ok {
			t.Errorf("readLine(%q) = %+v, want that it says nothing", msg, got)
		}
	}
	if got, ok := readFreed("74"); !ok || got.Holder != "t" {
		t.Errorf("readFreed = %+v, %v, want the token", got, ok)
	}
	for _, msg := range []string{"null", "x", "7"} {
		if _, ok := readFreed(msg); ok {
			t.Errorf("readFreed(%q) is true, want that it says nothing", msg)
		}
	}
}

// TestRenewsTogether: many locks are renewed by one statement for each 256.
func TestRenewsTogether(t *testing.T) {
	t.Parallel()
	p := newProtocol(migrated(t), settingsOf(nil))
	defer p.Close()
	counts := &counted{database: p.database}
	p.database = counts
	const n = mostExtended + 10
	base := unique(t)
	claims := make([]driver.Claim, n)
	for i := range claims {
		claims[i] = driver.Claim{Name: "n", Key: fmt.Sprint(base, i), Token: fmt.Sprint(base, i), TTL: time.Minute, Due: time.Now().Add(time.Minute)}
		if i%50 != 1 {
			_, err := p.Acquire(t.Context(), claims[i])
			want(t, "Acquire", err, nil)
		}
	}
	before := counts.requests
	answered := 0
	p.ExtendAll(t.Context(), claims, func(i int, _ driver.Grant, err error) {
		answered++
		if lost := i%50 == 1; lost != errors.Is(err, strategy.ErrLost) || !lost && err != nil {
			t.Errorf("Extend of lock %d = %v", i, err)
		}
	})
	if answered != n || counts.requests-before != 2 {
		t.Errorf("%d answers by %d requests, want %d by 2", answered, counts.requests-before, n)
	}
	for _, c := range claims {
		p.Undo(t.Context(), c) //nolint:errcheck // it tidies up
	}
}

type counted struct {
	database
	requests int
}

func (c *counted) ask(ctx context.Context, due time.Time, r statement) (any, error) {
	c.requests++
	return c.database.ask(ctx, due, r)
}

// TestNoBareConnection: a strategy closes its connection that listens.
func TestNoBareConnection(t *testing.T) {
	t.Parallel()
	url := ownDatabase(t)
	pool := poolOf(t, url)
	migrate(t, pool)
	s, err := New(pool, long)
	want(t, "New", err, nil)
	lease := try(t, s.NewLock("a"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.NewLock("a").Acquire(ctx)
		ended <- err
	}()
	listeners := func() int {
		return value[int](t, pool, "select count(*) from pg_stat_activity where datname = current_database() and application_name like '%locks'")
	}
	other := open(t, pool, long)
	go other.NewLock("a").Acquire(ctx) //nolint:errcheck // it is called off
	verdict.Eventually(t, "both listen", func() bool { return listeners() == 2 })
	cancel()
	<-ended
	want(t, "Release", lease.Release(t.Context()), nil)
	want(t, "Close", s.Close(), nil)
	want(t, "Close", other.Close(), nil)
	verdict.Eventually(t, "nobody listens", func() bool { return listeners() == 0 })
}
