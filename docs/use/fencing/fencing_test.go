package fencing

// Tests what the stores of docs/use/fencing.md (SQL, Redis and HTTP) accept and refuse by the fence, one request at a time,
// at random interleavings, and with half of the rule alone.

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gomodule/redigo/redis"
	_ "modernc.org/sqlite"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// A store is what all three are.
type store interface {
	Read(ctx context.Context, id string, h Holder) (string, error)
	Write(ctx context.Context, id, value string, h Holder) error
}

// kinds are the stores, each opened for one test.
var kinds = map[string]func(t *testing.T) store{
	"sql": func(t *testing.T) store { return SQL{openSQL(t, filepath.Join(t.TempDir(), "items.db"))} },
	"redis": func(t *testing.T) store {
		return Redis{redistest.Shared(t).Pool()}
	},
	"http": func(t *testing.T) store { return HTTP{serve(t, NewHandler()), http.DefaultClient} },
}

// onEach runs a test on every store.
func onEach(t *testing.T, test func(t *testing.T, s store)) {
	t.Parallel()
	for kind, open := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// openSQL opens the file, with the table. A writer that finds it locked waits for as
// long as the loaded machine takes.
func openSQL(t *testing.T, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=synchronous(off)")
	redistest.Must(t, err)
	t.Cleanup(func() { db.Close() })
	_, err = db.Exec(Schema)
	redistest.Must(t, err)
	return db
}

func serve(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// TestRule walks through the rule, case by case, on every store.
func TestRule(t *testing.T) {
	onEach(t, func(t *testing.T, s store) {
		ctx, id := t.Context(), rand.Text()
		one, two, twin := Holder{1, "a"}, Holder{2, "b"}, Holder{2, "c"}
		read := func(h Holder, want string, wantErr error) {
			t.Helper()
			if got, err := s.Read(ctx, id, h); got != want || !errors.Is(err, wantErr) {
				t.Errorf("Read by %v = %q, %v, want %q, %v", h, got, err, want, wantErr)
			}
		}
		write := func(h Holder, value string, wantErr error) {
			t.Helper()
			if err := s.Write(ctx, id, value, h); !errors.Is(err, wantErr) {
				t.Errorf("Write by %v = %v, want %v", h, err, wantErr)
			}
		}
		read(one, "", nil) // nobody has written
		write(one, "x", nil)
		write(one, "xy", nil) // again, as often as it likes
		read(two, "xy", nil)  // raises the maximum
		write(one, "xyz", ErrStale)
		read(one, "", ErrStale)
		read(two, "xy", nil)
		write(twin, "xyt", ErrStale) // an equal fence of another owner
		read(twin, "", ErrStale)
		write(two, "xyb", nil)
		read(two, "xyb", nil)
		write(Holder{9, "a"}, "n", nil) // fences may have gaps
		read(Holder{9, "a"}, "n", nil)

		for _, bad := range []Holder{{}, {0, "a"}, {1 << 53, "a"}, {1, ""}} {
			if _, err := s.Read(ctx, rand.Text(), bad); err == nil || errors.Is(err, ErrStale) {
				t.Errorf("Read by %v = %v, want an error that it is no holder", bad, err)
			}
			if err := s.Write(ctx, rand.Text(), "v", bad); err == nil || errors.Is(err, ErrStale) {
				t.Errorf("Write by %v = %v, want an error that it is no holder", bad, err)
			}
		}
		write(Holder{1<<53 - 1, "a"}, "last", nil) // the greatest that is allowed, exactly
		write(Holder{1<<53 - 2, "a"}, "late", ErrStale)
		read(Holder{1<<53 - 1, "a"}, "last", nil)
	})
}

// TestOddOwners: owners are told apart, and get through, whatever they are made of.
func TestOddOwners(t *testing.T) {
	onEach(t, func(t *testing.T, s store) {
		for i, owner := range []string{"a", "a ", " a", "a\n", "ä%20"} {
			id := fmt.Sprint("item ", i)
			if err := s.Write(t.Context(), id, "v", Holder{5, owner}); err != nil {
				t.Errorf("Write() of owner %q = %v, want nil", owner, err)
			}
			if owner == "a" {
				continue
			}
			if err := s.Write(t.Context(), id, "w", Holder{5, "a"}); !errors.Is(err, ErrStale) {
				t.Errorf("Write() of another with the fence of owner %q = %v, want ErrStale", owner, err)
			}
		}
	})
}

// TestRace lets holders at the store all at once, each to read and append its letter
// once. Whatever gets in, none that got in is missing.
func TestRace(t *testing.T) {
	onEach(t, func(t *testing.T, s store) {
		ctx, id := t.Context(), rand.Text()
		var mu sync.Mutex
		var wrote []string
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				h, letter := Holder{uint64(1 + i/2), string(rune('p' + i))}, string(rune('p'+i))
				value, err := s.Read(ctx, id, h)
				if err == nil {
					err = s.Write(ctx, id, value+letter, h)
				}
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					wrote = append(wrote, letter)
				} else if !errors.Is(err, ErrStale) {
					t.Errorf("holder %v: %v", h, err)
				}
			})
		}
		all.Wait()
		last := Holder{100, "z"}
		value, err := s.Read(ctx, id, last)
		if err != nil || len(value) != len(wrote) {
			t.Errorf("Read = %q, %v, want the letters %q of those whose writes were accepted", value, err, wrote)
		}
		for _, letter := range wrote {
			if !strings.Contains(value, letter) {
				t.Errorf("the value is %q: the update %q was accepted and is lost", value, letter)
			}
		}
	})
}

// interleave lets holders with few fences and owners, so that there are ties, read,
// think and write in a random order. It tells of the first update that was accepted
// and lost, or of the first answer that is not the rule's ("" if there is none). An
// update is one letter put behind what its holder has read.
func interleave(ctx context.Context, s store, r *mrand.Rand, ruled bool) (wrong string, err error) {
	const owners = "abc"
	type client struct {
		Holder
		seen string
		has  bool // it has read
	}
	var clients []*client
	for _, owner := range owners {
		for range 2 {
			fence := uint64(1 + r.IntN(4))
			distinct := true
			for _, c := range clients {
				distinct = distinct && c.Holder != Holder{fence, string(owner)}
			}
			if distinct { // two of one holder would be one holder that races itself
				clients = append(clients, &client{Holder: Holder{fence, string(owner)}})
			}
		}
	}
	id, value := rand.Text(), ""
	var touched []Holder // those whose writes were accepted
	var history strings.Builder
	for step := range 16 {
		c := clients[r.IntN(len(clients))]
		writes := c.has && r.IntN(2) == 0

		// The rule, said of all the past rather than of a maximum.
		stale := false
		for _, earlier := range touched {
			stale = stale || earlier.Fence > c.Fence || earlier.Fence == c.Fence && earlier.Owner != c.Owner
		}
		var got string
		if writes {
			got = c.seen + string(rune('A'+step))
			err = s.Write(ctx, id, got, c.Holder)
			fmt.Fprintf(&history, "%v writes %q: %v\n", c.Holder, got, err)
		} else {
			got, err = s.Read(ctx, id, c.Holder)
			fmt.Fprintf(&history, "%v reads: %q, %v\n", c.Holder, got, err)
		}
		if err != nil && !errors.Is(err, ErrStale) {
			return "", err
		}
		if ruled && (err != nil) != stale {
			return fmt.Sprintf("%sby the rule it is stale: %v", &history, stale), nil
		}
		if err != nil {
			continue
		}
		touched = append(touched, c.Holder)
		if writes && !strings.HasPrefix(got, value) {
			return fmt.Sprintf("%sthe value was %q: an update is lost", &history, value), nil
		}
		if !writes && got != value {
			return fmt.Sprintf("%sthe value was %q", &history, value), nil
		}
		value, c.seen, c.has = got, got, true
	}
	return "", nil
}

func random(t *testing.T) *mrand.Rand {
	seed := mrand.Uint64()
	t.Logf("seed %d", seed)
	return mrand.New(mrand.NewPCG(seed, 0))
}

// TestInterleavings holds every store to the rule, and to what it is for: no update is
// lost.
func TestInterleavings(t *testing.T) {
	onEach(t, func(t *testing.T, s store) {
		r := random(t)
		for range 60 {
			if wrong, err := interleave(t.Context(), s, r, true); wrong != "" || err != nil {
				t.Fatal(wrong, err)
			}
		}
	})
}

// TestHalfRules shows what each half of the rule is for: a store with the other half alone is seen to lose an update.
func TestHalfRules(t *testing.T) {
	t.Parallel()
	for half, spoil := range map[string]func(http.Handler) http.Handler{
		"a read that does not raise the maximum": quietly,
		"equal fences of any owner":              anonymously,
	} {
		t.Run(half, func(t *testing.T) {
			t.Parallel()
			s, r := HTTP{serve(t, spoil(NewHandler())), http.DefaultClient}, random(t)
			for range 1000 {
				lost, err := interleave(t.Context(), s, r, false)
				redistest.Must(t, err)
				if lost != "" {
					t.Log("seen:\n" + lost)
					return
				}
			}
			t.Error("no update was lost in 1000 interleavings: the test cannot see what the rule is for")
		})
	}
}

// anonymously lets all requests pass as those of one owner.
func anonymously(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set(OwnerHeader, "anybody")
		h.ServeHTTP(w, r)
	})
}

// quietly lets reads pass as the last writer's, so that they raise nothing.
func quietly(h http.Handler) http.Handler {
	last := map[string]http.Header{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			if writer := last[r.URL.Path]; writer != nil {
				r.Header = writer
			} else {
				return // an item that nobody has written
			}
			h.ServeHTTP(w, r)
			return
		}
		reply := httptest.NewRecorder()
		h.ServeHTTP(reply, r)
		if reply.Code == http.StatusNoContent {
			last[r.URL.Path] = r.Header
		}
		w.WriteHeader(reply.Code)
	})
}

// TestHTTPStatus: the status tells a client in any language what is wrong.
func TestHTTPStatus(t *testing.T) {
	t.Parallel()
	url := serve(t, NewHandler()) + "/items/x"
	ask := func(method, fence, owner string, want int) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("v"))
		redistest.Must(t, err)
		for name, value := range map[string]string{FenceHeader: fence, OwnerHeader: owner} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		reply, err := http.DefaultClient.Do(r)
		redistest.Must(t, err)
		reply.Body.Close()
		if reply.StatusCode != want {
			t.Errorf("%s with fence %q, owner %q = %d, want %d", method, fence, owner, reply.StatusCode, want)
		}
		if method == http.MethodGet && reply.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s = Cache-Control %q, want no-store: a read from a cache raises nothing", method, reply.Header.Get("Cache-Control"))
		}
	}
	for method, done := range map[string]int{http.MethodGet: http.StatusOK, http.MethodPut: http.StatusNoContent} {
		for _, whose := range []struct{ fence, owner string }{{"", ""}, {"7", ""}, {"", "a"}} {
			ask(method, whose.fence, whose.owner, http.StatusPreconditionRequired)
		}
		for _, bad := range []string{"0", "-1", "seven", "9007199254740992"} {
			ask(method, bad, "a", http.StatusBadRequest)
		}
		ask(method, "7", "a", done)
		ask(method, "6", "a", http.StatusPreconditionFailed)
		ask(method, "7", "b", http.StatusPreconditionFailed)
	}
}

// TestHTTPRedirect: what was not stored is an error, though a proxy stands between.
func TestHTTPRedirect(t *testing.T) {
	t.Parallel()
	url, ctx := serve(t, NewHandler()), t.Context()
	for _, code := range []int{301, 302, 303, 307, 308} {
		front := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, url+r.URL.Path, code)
		}))
		if err := (HTTP{URL: front}).Write(ctx, "x", "v", Holder{1, "a"}); err == nil || errors.Is(err, ErrStale) {
			t.Errorf("Write by a redirect of %d = %v, want an error", code, err)
		}
	}
	for _, id := range []string{"x", "order/1", "ä ö", "a%2Fb"} {
		s := HTTP{URL: url + "/"}
		if err := s.Write(ctx, id, "v", Holder{2, "a"}); err != nil {
			t.Errorf("Write of %q = %v, want nil", id, err)
		}
		if got, err := s.Read(ctx, id, Holder{2, "a"}); got != "v" || err != nil {
			t.Errorf("Read of %q = %q, %v, want what was written", id, got, err)
		}
	}
}

// TestRedisOddKeys: what is no item is an error, and stays as it was.
func TestRedisOddKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	s, ctx := Redis{server.Pool()}, t.Context()

	id := rand.Text()
	redistest.Do(t, server, "SET", "item:"+id, "text")
	if err := s.Write(ctx, id, "v", Holder{1, "a"}); err == nil || errors.Is(err, ErrStale) {
		t.Errorf("Write to a key of another type = %v, want the server's error", err)
	}
	id = rand.Text()
	redistest.Do(t, server, "HSET", "item:"+id, "fence", "new", "value", "x")
	if err := s.Write(ctx, id, "v", Holder{1, "a"}); err == nil || errors.Is(err, ErrStale) {
		t.Errorf("Write to an item whose fence is no number = %v, want the script's error", err)
	}
	if got, _ := redis.String(redistest.Do(t, server, "HGET", "item:"+id, "value"), nil); got != "x" {
		t.Errorf("value = %q, want x: an error changes nothing", got)
	}
}
