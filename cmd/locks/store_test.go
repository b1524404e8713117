//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Tests the tool on PostgreSQL and etcd.
package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstrategies/locks/internal/testkit/clitest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/stores/postgres"
	"github.com/lockstrategies/locks/strategy"
)

// onStores runs a test on each store, which has what locks need.
func onStores(t *testing.T, test func(t *testing.T, at string)) {
	t.Parallel()
	t.Run(onPostgres, func(t *testing.T) {
		t.Parallel()
		at := storetest.PostgresURL(t)
		storeTool(t, at, "migrate").start().wantEnd(0)
		test(t, at)
	})
	t.Run(onEtcd, func(t *testing.T) {
		t.Parallel()
		test(t, "etcd://"+strings.Join(storetest.EtcdEndpoints(t), ","))
	})
}

// storeTool is the command, to be run on a store.
func storeTool(t *testing.T, at string, args ...string) *tool {
	t.Helper()
	c := toolFor(t, nil, args...)
	c.Env = append(c.Env, storeVar+"="+at, redisVar+"=127.0.0.1:1")
	return c
}

// TestStore: each command that is for stores does there what it does on Redis.
func TestStore(t *testing.T) {
	onStores(t, func(t *testing.T, at string) {
		kind, _, _ := strings.Cut(at, ":")
		name := "a/" + newName(t)
		run := func(args ...string) *tool { return storeTool(t, at, args...).start() }
		if out := run("check").wantEnd(0); out != "ready for "+kind+" locks\n" {
			t.Errorf("check prints %q", out)
		}
		watch := run("watch", name, "--every", "10ms")
		says := func(what string) {
			t.Helper()
			if line := watch.line(); !strings.Contains(line, what) {
				t.Errorf("watch says %q, want %q", line, what)
			}
		}
		says("  free")
		held := storeTool(t, at, "exec", name, "--label", "first", "--", "sh", "-c", `echo "$LOCKS_FENCE"; read line; exit 7`).begin()
		fence := held.number()
		says(`"first", fence ` + fmt.Sprint(fence))
		waits := run("exec", name, "--label", "second", "--wait", "60s", "--", "sh", "-c", "echo $LOCKS_FENCE")
		verdict.Eventually(t, "list shows who holds the lock, and who waits for it", func() bool {
			var locks []listed
			redistest.Must(t, json.Unmarshal([]byte(run("list", "--json", "a/too? *").wantEnd(0)), &locks))
			i := slices.IndexFunc(locks, func(l listed) bool { return l.Name == name })
			return i >= 0 && locks[i].Holder.Label == "first" && len(locks[i].Queue) == 1 && locks[i].Queue[0].Holder.Label == "second"
		})
		if out := run("list").wantEnd(0); !strings.Contains(out, "\n"+name+"  ") {
			t.Errorf("list prints\n%s", out)
		}
		if out := run("inspect", name).wantEnd(0); !strings.Contains(out, `queue    `) || !strings.Contains(out, `"second"`) {
			t.Errorf("inspect says\n%s", out)
		}
		run("exec", name, "--try", "--", "true").wantEnd(75, "is held by ")
		run("list", "b*").wantEnd(0, "no lock is held whose key matches lock:{b*}")
		held.in.Close()
		if _, code := held.end(); code != 7 {
			t.Errorf("exec exits with %d, want the command's 7", code)
		}
		if later := waits.number(); later <= fence {
			t.Errorf("the fences are %d and then %d, want them to rise", fence, later)
		}
		waits.wantEnd(0)
		verdict.Eventually(t, "watch sees the release", func() bool { return strings.Contains(watch.line(), "  free") })
		watch.kill(syscall.SIGINT)
		watch.wantEnd(130, "")

		lost := storeTool(t, at, "exec", name, "--ttl", "9s", "--", "sh", "-c", "echo in; sleep 600").start()
		lost.line()
		run("release", name).wantEnd(2, "--force does it")
		if out := run("release", name, "--force").wantEnd(0); !strings.Contains(out, "taken from") {
			t.Errorf("release prints %q", out)
		}
		lost.wantEnd(76, "")

		run("exec", name, "--at-least", "60s", "--", "true").wantEnd(0)
		run("exec", name, "--at-least", "60s", "--", "true").wantEnd(75, "/at-least\" is held")
		run("release", name+markSuffix, "--force").wantEnd(0)
	})
}

// TestStoreSecrets: a password of a store is in no argument, no message, and with --no-redis-env in no environment.
func TestStoreSecrets(t *testing.T) {
	onStores(t, func(t *testing.T, at string) {
		u, err := url.Parse(at)
		redistest.Must(t, err)
		u.User = url.UserPassword("postgres", "sword:fish@/?")
		secret := u.String() // the server asks for none
		c := storeTool(t, secret, "exec", newName(t), "--no-redis-env", "--", "sh", "-c", "env; cat /proc/$PPID/cmdline")
		c.Env = append(c.Env, pgPasswordVar+"=swordfish")
		out := c.start().wantEnd(0)
		if strings.Contains(out, storeVar) || strings.Contains(out, "fish") && !strings.HasPrefix(at, "etcd") {
			t.Errorf("the command sees the password: %s", out)
		}
		u.Host = "127.0.0.1:1"
		var all []*tool
		for _, args := range [][]string{{"exec", "x", "--", "true"}, {"list"}, {"check"}, {"release", "x"}} {
			all = append(all, storeTool(t, u.String(), args...).start())
		}
		for _, c := range all {
			if out, code := c.end(); code != 69 || strings.Contains(out+c.errs.String(), "fish") || c.errs.Len() == 0 {
				t.Errorf("%q: exit %d, %q, %q, want 69, and a reason without the password", c.Args[1:], code, out, c.errs)
			}
		}
	})
}

// TestStoreMisuse: what is not for a store says what it is for. No message repeats a password.
func TestStoreMisuse(t *testing.T) {
	t.Setenv(redisVar, "")
	t.Setenv(storeVar, "")
	const pg, etcd = " --store postgres://h/d", " --store etcd://h"
	for _, c := range []struct{ args, want string }{
		{"inspect a --redis h" + pg, "--store and --redis exclude each other"},
		{"inspect a --strategy fairqueue" + pg, "--strategy with postgres: that is for Redis"},
		{"check --permits 5 --max-ttl 5s" + etcd, "--permits, --max-ttl with etcd: that is for Redis"},
		{"exec a --read" + pg + " -- true", "--read with postgres: that is for Redis"},
		{"list --db 5" + pg, "--db with postgres: that is for Redis"},
		{"list --tls" + pg, "--tls with postgres: its address says that, as with psql"},
		{"list --tls-ca x" + etcd, "--tls-ca without TLS: give --tls, or an address with rediss:// or etcds://"},
		{"list [a" + etcd, "the pattern [a: "},
		{"list --user u" + etcd, "there is a user and no password: give --password-file or set LOCKS_STORE"},
		{"exec a --ttl 1500ms" + etcd + " -- true", "--ttl and --at-least with etcd: allowed are whole seconds"},
		{"exec a --at-least 1500ms" + etcd + " -- true", "--ttl and --at-least with etcd: allowed are whole seconds"},
		{"bootstrap" + pg, "unknown flag: --store"},
		{"migrate", "which PostgreSQL? Give --store or set LOCKS_STORE"},
		{"migrate" + etcd, "migrate is for PostgreSQL: etcd needs no schema"},
		{"check --store=", "--store: an address that begins otherwise; allowed are postgres://"},
		{"check --store redis://u:swordfish@h", "--store: an address that begins otherwise; allowed are postgres://"},
		{"check --store u:swordfish@h", "--store: an address that begins otherwise; allowed are postgres://"},
		{"check --store etcd://u:sword/fish@h", "--store: an address cannot be read"},
		{"check --store postgres://u:swordfish@h/d", "--store has a password"},
		{"check --store postgres://h/d?password=swordfish", "an address with a password behind the ?"},
		{"check --store postgres://h/d?sslmode=swordfish", "the address of PostgreSQL cannot be read: sslmode is invalid"},
		{"check --store postgres://u:sword/fish@h", "--store: an address cannot be read"},
		{"check --store postgres://u:sword#fish@h", "--store: an address"},
		{"check --store etcd://u:swordfish@h", "--store has a password"},
		{"check --store etcd://", "an address of etcd whose hosts cannot be read"},
		{"check --store etcd://h/path", "an address of etcd whose hosts cannot be read"},
	} {
		if said := clitest.Misuse(t, rootCommand(), c.args, c.want); strings.Contains(strings.ReplaceAll(said, "sslmode", ""), "fish") {
			t.Errorf("%s: %q repeats the password", c.args, said)
		}
	}
	t.Setenv(storeVar, "mysql://u:swordfish@h")
	clitest.Misuse(t, rootCommand(), "list", "LOCKS_STORE: an address that begins otherwise")
	clitest.Misuse(t, rootCommand(), "list --redis h:x", "--redis: an address") // a flag counts more
}

func TestParseStore(t *testing.T) {
	for s, want := range map[string]address{
		"postgres://h/d":                     {network: onPostgres, at: "postgres://h/d"},
		"postgresql://u:p%40@h:1,g:2/d?x=y":  {network: onPostgres, at: "postgresql://h:1,g:2/d?x=y", user: "u", password: "p@"},
		"postgres:///d?host=/run/postgresql": {network: onPostgres, at: "postgres:///d?host=/run/postgresql"},
		"etcd://h":                           {network: onEtcd, at: "h"},
		"etcds://u:p@h:1,[::1]:2/":           {network: onEtcd, at: "h:1,[::1]:2", user: "u", password: "p", tls: true},
	} {
		if got, err := parseStore(s); got != want || err != nil {
			t.Errorf("parseStore(%q) = %+v, %v, want %+v", s, got, err, want)
		}
	}
}

// TestMatches: a pattern means for a store what it means for Redis.
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, key string
		want         bool
	}{
		{"lock:{*}", "lock:{a/b}", true}, {"lock:{a*c}", "lock:{a/b/c}", true}, {"lock:{a?c}", "lock:{a/c}", true}, {"lock:{[ab]}", "lock:{b}", true},
		{`lock:{\*}`, "lock:{*}", true}, {`lock:{\*}`, "lock:{a}", false}, {"lock:{a}", "lock:{ab}", false}, {"lock:{[^a]}", "lock:{a}", false},
	} {
		if got, err := matches(c.pattern, c.key); got != c.want || err != nil {
			t.Errorf("matches(%q, %q) = %v, %v, want %v", c.pattern, c.key, got, err, c.want)
		}
	}
}

// TestStoreOutlasts: --wait covers what passes, and no wrong password.
func TestStoreOutlasts(t *testing.T) {
	e := execution{wait: time.Minute}
	for what, c := range map[string]struct {
		err  error
		want bool
	}{
		"starts":         {&pgconn.PgError{Code: "57P03"}, true},
		"a standby":      {&pgconn.PgError{Code: "25006"}, true},
		"a password":     {&pgconn.PgError{Code: "28P01"}, false},
		"no schema":      {&pgconn.PgError{Code: "3F000"}, false},
		"no leader":      {rpctypes.ErrNoLeader, true},
		"full":           {rpctypes.ErrNoSpace, true},
		"no right":       {rpctypes.ErrPermissionDenied, false},
		"no answer":      {os.ErrDeadlineExceeded, true},
		"of a user's":    {rpctypes.ErrAuthFailed, false},
		"too many users": {&pgconn.PgError{Code: "53300"}, true},
	} {
		if got := e.outlasts(&strategy.ServerError{Node: "n", Kind: strategy.ErrUnsent, Err: c.err}); got != c.want {
			t.Errorf("%s: outlasts = %v, want %v", what, got, c.want)
		}
	}
}

// TestMigrate: nothing makes the schema but migrate, which says how; --print is the same for psql.
func TestMigrate(t *testing.T) {
	t.Parallel()
	at := storetest.PostgresURL(t)
	admin, err := pgx.Connect(t.Context(), at)
	redistest.Must(t, err)
	defer admin.Close(t.Context())
	database := fmt.Sprintf("tool_%d", time.Now().UnixNano())
	if _, err := admin.Exec(t.Context(), "create database "+database); err != nil {
		t.Fatal(err)
	}
	defer admin.Exec(t.Context(), "drop database "+database+" with (force)") //nolint:errcheck // it is empty
	u, err := url.Parse(at)
	redistest.Must(t, err)
	u.Path = "/" + database
	for _, args := range [][]string{{"check"}, {"exec", "a", "--", "true"}, {"list"}, {"inspect", "a"}, {"release", "a"}} {
		storeTool(t, u.String(), args...).start().wantEnd(69, "locks migrate makes the schema")
	}
	for range 2 {
		if out := storeTool(t, "", "migrate", "--store", u.String()).start().wantEnd(0); out != "the schema locks is there\n" {
			t.Errorf("migrate prints %q", out)
		}
	}
	storeTool(t, u.String(), "check").start().wantEnd(0)
	if out := storeTool(t, "", "migrate", "--print").start().wantEnd(0); out != postgres.Migration() {
		t.Errorf("migrate --print prints\n%s", out)
	}
	u.Path = "/nowhere"
	storeTool(t, u.String(), "migrate").start().wantEnd(69, "nowhere")
	if psql, err := exec.LookPath("psql"); err == nil {
		u.Path = "/" + database
		cmd := exec.CommandContext(t.Context(), psql, "-q", "-v", "ON_ERROR_STOP=1", "--single-transaction", u.String())
		cmd.Stdin = strings.NewReader(postgres.Migration())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("psql: %v\n%s", err, out)
		}
	}
}

// TestEtcdUser: on a cluster that demands a user, the tool gets the lock with the right password alone. With a wrong one it
// ends at once, also with --wait.
func TestEtcdUser(t *testing.T) {
	t.Parallel()
	addr := storetest.OwnEtcd(t, 1)[0].Addr
	admin, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	redistest.Must(t, err)
	defer admin.Close()
	for _, step := range []func() error{
		func() error { _, err := admin.UserAdd(t.Context(), "root", "swordfish"); return err },
		func() error { _, err := admin.RoleAdd(t.Context(), "root"); return err },
		func() error { _, err := admin.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := admin.AuthEnable(t.Context()); return err },
	} {
		redistest.Must(t, step())
	}
	run := func(user string) *tool {
		return storeTool(t, "etcd://"+user+addr, "exec", newName(t), "--wait", "60s", "--", "true").start()
	}
	run("root:swordfish@").wantEnd(0)
	c := run("root:wrongfish@")
	c.wantEnd(69, `user "root": etcdserver: authentication failed`)
	if strings.Contains(c.errs.String(), "fish") {
		t.Errorf("%q repeats the password", c.errs)
	}
	run("").wantEnd(69, "user name is empty")
	file := storeTool(t, "", "list", "--store", "etcd://root@"+addr, "--password-file", "-")
	file.Stdin = strings.NewReader("swordfish\n")
	file.start().wantEnd(0, "no lock is held")
}
