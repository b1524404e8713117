// Each error of a server arrives with its own first word, whichever script or command has met it, and a server that refuses to
// write answers nothing else: all scripts of all algorithms on one server, on real servers that are in real trouble.
package subjects

import (
	"context"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// A trouble is why a server refuses.
type trouble struct {
	word  string // of its errors, the first. What an ACL forbids in a script, servers say in other words: see rediskit.Forbidden
	all   bool   // it refuses every question, or else those that need what it lacks
	begin func(t *testing.T, s *redistest.Server)
	end   func(t *testing.T, s *redistest.Server)
}

func configure(settings ...any) func(t *testing.T, s *redistest.Server) {
	return func(t *testing.T, s *redistest.Server) {
		for i := 0; i < len(settings); i += 2 {
			redistest.Do(t, s, "CONFIG", "SET", settings[i], settings[i+1])
		}
	}
}

var troubles = []trouble{
	{"READONLY", true,
		func(t *testing.T, s *redistest.Server) { redistest.Do(t, s, "REPLICAOF", "127.0.0.1", "1") },
		func(t *testing.T, s *redistest.Server) { redistest.Do(t, s, "REPLICAOF", "NO", "ONE") }},
	{"NOREPLICAS", true, configure("min-replicas-to-write", 1), configure("min-replicas-to-write", 0)},
	{"MISCONF", true,
		func(t *testing.T, s *redistest.Server) {
			configure("save", "900 1", "stop-writes-on-bgsave-error", "yes", "dir", "/proc")(t, s)
			c := s.Pool().Get()
			defer c.Close()
			c.Do("BGSAVE") //nolint:errcheck // it fails at once, or a moment later
			verdict.Eventually(t, "the snapshot has failed", func() bool {
				info, err := redis.String(c.Do("INFO", "persistence"))
				return err == nil && strings.Contains(info, "rdb_last_bgsave_status:err")
			})
		},
		configure("stop-writes-on-bgsave-error", "no", "save", "", "dir", "/tmp")},
	{"OOM", false, configure("maxmemory", 1), configure("maxmemory", 0)},
	{"NOPERM", false,
		func(t *testing.T, s *redistest.Server) {
			redistest.Do(t, s, "ACL", "SETUSER", "locker", "-@write", "-get")
		},
		func(t *testing.T, s *redistest.Server) { redistest.Do(t, s, "ACL", "SETUSER", "locker", "+@all") }},
	{"LOADING", true,
		func(t *testing.T, s *redistest.Server) {
			configure("rdbcompression", "no", "loading-process-events-interval-bytes", 1024, "key-load-delay", 20_000)(t, s)
			redistest.Do(t, s, "DEBUG", "POPULATE", 5000, "much", 2000)
			go func() {
				c := s.Pool().Get()
				defer c.Close()
				redis.DoWithTimeout(c, time.Minute, "DEBUG", "RELOAD") //nolint:errcheck // it ends with the trouble
			}()
			c := s.Pool().Get()
			defer c.Close()
			verdict.Eventually(t, "the server loads", func() bool {
				_, err := c.Do("GET", "much")
				return err != nil && strings.HasPrefix(err.Error(), "LOADING ")
			})
		},
		func(t *testing.T, s *redistest.Server) {
			configure("key-load-delay", 0)(t, s)
			verdict.Eventually(t, "the server has loaded", func() bool {
				c := s.Pool().Get()
				defer c.Close()
				_, err := c.Do("GET", "much")
				return err == nil
			})
		}},
	{"WRONGTYPE", false, func(t *testing.T, s *redistest.Server) {}, func(t *testing.T, s *redistest.Server) {}},
}

// A listener is a node that notes which scripts it has run, and what has been said of each.
type listener struct {
	driver.Node
	mu   sync.Mutex
	said map[string][]error // by script
}

func (l *listener) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	reply, err := l.Node.Eval(ctx, due, s, keys, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said[s.Name()] = append(l.said[s.Name()], err)
	return reply, err
}

// questions are what the engine asks of an algorithm, for locks that A holds, that B asks for, or that are free.
func questions(p driver.Protocol, claim func(lock, token string) driver.Claim) map[string]func(ctx context.Context) error {
	free, mine, others := claim("free", "B"), claim("held", "A"), claim("held", "B")
	mine.Grant.Start = time.Now()
	line := others
	line.Line = "line"
	again := others
	again.Again = true
	all := map[string]func(ctx context.Context) error{
		"acquire what is free":      func(ctx context.Context) error { _, err := p.Acquire(ctx, free); return err },
		"acquire what is held":      func(ctx context.Context) error { _, err := p.Acquire(ctx, others); return err },
		"queue":                     func(ctx context.Context) error { _, err := p.Acquire(ctx, line); return err },
		"acquire again":             func(ctx context.Context) error { _, err := p.Acquire(ctx, again); return err },
		"extend":                    func(ctx context.Context) error { _, err := p.Extend(ctx, mine); return err },
		"extend what another holds": func(ctx context.Context) error { _, err := p.Extend(ctx, others); return err },
		"extend what is free":       func(ctx context.Context) error { _, err := p.Extend(ctx, free); return err },
		"release what another holds": func(ctx context.Context) error {
			return locktest.Err(p.Release(ctx, others))
		},
		"release what is free":     func(ctx context.Context) error { return locktest.Err(p.Release(ctx, free)) },
		"undo":                     func(ctx context.Context) error { return p.Undo(ctx, others) },
		"adopt what another holds": func(ctx context.Context) error { _, err := p.Adopt(ctx, free, "A"); return err },
		"inspect":                  func(ctx context.Context) error { _, err := p.Inspect(ctx, mine); return err },
		"inspect what is free":     func(ctx context.Context) error { _, err := p.Inspect(ctx, free); return err },
	}
	if b, ok := p.(driver.BulkExtender); ok {
		all["extend several"] = func(ctx context.Context) (err error) {
			b.ExtendAll(ctx, []driver.Claim{mine, others, free}, func(i int, _ driver.Grant, e error) {
				if i == 1 {
					err = e
				}
			})
			return err
		}
	}
	if q, ok := p.(driver.Queuer); ok {
		all["pass what another holds"] = func(ctx context.Context) error { _, err := q.Pass(ctx, others, line); return err }
	}
	return all
}

// last are questions that end a hold, where the server does not refuse.
func last(p driver.Protocol, claim func(lock, token string) driver.Claim) (names []string, all map[string]func(ctx context.Context) error) {
	mine := claim("held", "A")
	force := mine
	force.Grant.Fence = 1
	return []string{"adopt", "release by force", "release"}, map[string]func(ctx context.Context) error{
		"adopt":            func(ctx context.Context) error { _, err := p.Adopt(ctx, claim("held", "C"), "A"); return err },
		"release by force": func(ctx context.Context) error { return locktest.Err(p.ForceRelease(ctx, force)) },
		"release":          func(ctx context.Context) error { return locktest.Err(p.Release(ctx, mine)) },
	}
}

var scriptsMade = regexp.MustCompile(`driver\.New(?:Joint)?Script\("(\w+)"`)

// scriptsOf are the names of a package's scripts.
func scriptsOf(t *testing.T, pkg string) (names []string) {
	t.Helper()
	files, err := os.ReadDir("../../../" + pkg)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile("../../../" + pkg + "/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range scriptsMade.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return names
}

func TestRefusalsKeepTheirFirstWord(t *testing.T) {
	for _, v := range All() {
		if v.Servers != 1 || v.Dead > 0 || v.Guarded || v.Name == "ifeq" {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Own(t, redistest.Config{Args: []string{"--enable-protected-configs", "yes", "--enable-debug-command", "yes"}})
			redistest.Do(t, s, "ACL", "SETUSER", "locker", "on", ">locker", "~*", "&*", "+@all")
			for _, x := range troubles {
				t.Run(x.word, func(t *testing.T) { v.refusals(t, s, x) })
				redistest.Do(t, s, "FLUSHALL")
			}
		})
	}
}

func (v Variant) refusals(t *testing.T, s *redistest.Server, x trouble) {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", s.Addr(), redis.DialUsername("locker"), redis.DialPassword("locker"))
	}}
	t.Cleanup(func() { pool.Close() })
	n := redigonode.New(pool)
	l := &listener{Node: n, said: map[string][]error{}}
	t.Cleanup(func() { n.Close() }) //nolint:errcheck // of a server in trouble
	p := v.On([]driver.Node{l})
	claim := func(lock, token string) driver.Claim {
		return driver.Claim{
			Name: lock, Key: strategy.DefaultKey(lock), Token: token, Owner: token, TTL: time.Minute, FenceTTL: time.Hour, Fences: 1,
			Due: time.Now().Add(30 * time.Second),
		}
	}
	if _, err := p.Acquire(t.Context(), claim("held", "A")); err != nil {
		t.Fatal(err)
	}
	if x.word == "WRONGTYPE" {
		for _, lock := range []string{"held", "free"} {
			redistest.Do(t, s, "DEL", strategy.DefaultKey(lock))
			redistest.Do(t, s, "XADD", strategy.DefaultKey(lock), "*", "a", "b")
		}
	}
	asked := questions(p, claim)
	if v.Permits != nil {
		permits, err := v.Permits(l, 1, strategy.Options{TTL: time.Minute, OpTimeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		asked["set permits"] = func(ctx context.Context) error { return permits.SetPermits(ctx, "held", 1) }
	}
	l.said = map[string][]error{}
	x.begin(t, s)
	order, ends := last(p, claim)
	ask := func(what string, f func(context.Context) error) {
		err := f(t.Context())
		var said *strategy.ServerError
		switch server := errors.As(err, &said) && said.Err != nil; {
		case server && x.word == "NOPERM" && rediskit.Forbidden(said.Err.Error()):
		case server && !strings.HasPrefix(rediskit.Reason(said.Err.Error()), x.word+" "):
			t.Errorf("%s = %v, want an error that begins with %s", what, err, x.word)
		case !server && x.all:
			t.Errorf("%s = %v, want %s: the server knows nothing", what, err, x.word)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(asked)) {
		ask(what, asked[what])
	}
	for _, what := range order {
		ask(what, ends[what])
	}
	x.end(t, s)
	for _, name := range scriptsOf(t, v.Package) {
		if len(l.said[name]) == 0 {
			t.Errorf("the script %s was not asked", name)
		}
	}
	if _, err := p.Acquire(t.Context(), claim("another", "A")); err != nil {
		t.Errorf("Acquire when the trouble is over = %v", err)
	}
}
