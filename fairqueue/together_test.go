package fairqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// A notebook is a node that grants and releases everything, and notes what it was asked.
type notebook struct {
	oneReply
	asked []request
}

type request struct {
	script *driver.Script
	keys   []string
	args   []any
}

func (n *notebook) Eval(_ context.Context, _ time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	n.asked = append(n.asked, request{s, slices.Clone(keys), slices.Clone(args)})
	return n.reply, nil
}

// A contender is a token that asks for a lock, or gives it up.
type contender struct{ name, token string }

func (c contender) claim() driver.Claim {
	return driver.Claim{Name: c.name, Key: strategy.DefaultKey(c.name), Token: c.token, TTL: time.Minute, Due: time.Now().Add(time.Minute)}
}

// acquires is what contenders ask who have had their locks before.
func acquires(t *testing.T, fences int64, cs ...contender) []request {
	t.Helper()
	book := &notebook{oneReply: oneReply{reply: fences}}
	var own []fairqueue.Option
	if fences == 0 {
		own = append(own, fairqueue.WithoutFences())
	}
	for _, c := range cs {
		p := fairqueue.On(book, own...) // of its own: a second acquire of a lock would not ask that again
		if _, err := p.Acquire(t.Context(), c.claim()); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for _, r := range book.asked {
		if first := !seen[r.keys[0]]; first && r.args[3] != "1" {
			t.Fatalf("arguments = %q, want a 1 in the fourth place: the first acquire asks whether it may release", r.args)
		}
		seen[r.keys[0]], r.args[3] = true, ""
	}
	return book.asked
}

func releases(t *testing.T, cs ...contender) []request {
	t.Helper()
	book := &notebook{oneReply: oneReply{reply: int64(1)}}
	p := fairqueue.On(book)
	for _, c := range cs {
		if err := p.Release(t.Context(), c.claim()); err != nil {
			t.Fatal(err)
		}
	}
	return book.asked
}

// together makes one request of several, as NewJointScript lays them out, and returns what
// each of them is told.
func together(t *testing.T, s *redistest.Server, asked []request) []any {
	t.Helper()
	first := asked[0]
	shared, ok := first.script.Joint()
	if !ok {
		t.Fatalf("%s is no joint script", first.script.Name())
	}
	words := []any{first.script.Source(), len(first.keys) * len(asked)}
	for k := range first.keys {
		for _, r := range asked {
			words = append(words, r.keys[k])
		}
	}
	for a, arg := range first.args {
		if a < shared {
			words = append(words, arg)
			continue
		}
		for _, r := range asked {
			words = append(words, r.args[a])
		}
	}
	c := s.Pool().Get()
	defer c.Close()
	reply, err := c.Do("EVAL", words...)
	if len(asked) == 1 {
		if err != nil {
			reply = err
		}
		return []any{reply}
	}
	answers, err := redis.Values(reply, err)
	if err != nil || len(answers) != len(asked) {
		t.Fatalf("%s for %d = %q, %v, want an answer for each", first.script.Name(), len(asked), answers, err)
	}
	return answers
}

func isError(answer any, word string) bool {
	err, ok := answer.(redis.Error)
	return ok && strings.Contains(err.Error(), word)
}

func isHeld(answer any, holder string) bool {
	r, _ := answer.([]any)
	return len(r) == 2 && fmt.Sprintf("%s", r[0]) == holder
}

// TestTogether: what many ask in one request is what each would be told alone, also where
// some of them are not to have what they ask for.
func TestTogether(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	key := strategy.DefaultKey
	do := func(args ...any) any { t.Helper(); return redistest.Do(t, s, args[0].(string), args[1:]...) }
	text := func(key string) string { t.Helper(); return fmt.Sprintf("%s", do("GET", key)) }
	for _, fenced := range []int64{1, 0} {
		t.Run(map[int64]string{1: "Fenced", 0: "Unfenced"}[fenced], func(t *testing.T) {
			// Alone and in company; undisturbed, and in a company in which something is amiss.
			for _, n := range []int{1, 2, 7} {
				for _, amiss := range []bool{false, true} {
					do("FLUSHALL")
					var cs []contender
					for i := range n {
						cs = append(cs, contender{fmt.Sprint("lock", i), fmt.Sprint("token", i)})
					}
					if amiss {
						cs = append(cs, contender{"held", "late"})
						do("SET", key("held"), "holder")
					}
					last := make([]int64, n)
					for range 3 {
						for i, answer := range together(t, s, acquires(t, fenced, cs...)) {
							if i == n {
								if !isHeld(answer, "holder") {
									t.Errorf("of a lock that is held = %q, want its holder", answer)
								}
								continue
							}
							fence, ok := answer.(int64)
							if !ok || fenced == 0 && fence != 0 || fenced == 1 && fence <= last[i] {
								t.Fatalf("answer %d of %d = %v, want a grant with a fence after %d", i, n, answer, last[i])
							}
							last[i] = fence
							if got := text(key(cs[i].name)); got != cs[i].token {
								t.Errorf("holder of %s = %s, want %s", cs[i].name, got, cs[i].token)
							}
							if ms := do("PTTL", key(cs[i].name)).(int64); ms < 30_000 || ms > 60_000 {
								t.Errorf("PTTL of %s = %d ms, want about a minute", cs[i].name, ms)
							}
							if fenced == 1 && text(key(cs[i].name)+":fence") != fmt.Sprint(fence) {
								t.Errorf("counter of %s = %s, want the fence %d", cs[i].name, text(key(cs[i].name)+":fence"), fence)
							}
						}
						for i, answer := range together(t, s, releases(t, cs...)) {
							if i == n {
								if b, ok := answer.([]byte); !ok || string(b) != "holder" {
									t.Errorf("release of another's lock = %q, want its holder", answer)
								}
							} else if answer != int64(1) || do("EXISTS", key(cs[i].name)) != int64(0) {
								t.Errorf("release of %s = %q, want 1, and no lock", cs[i].name, answer)
							}
						}
						if amiss && text(key("held")) != "holder" {
							t.Errorf("holder of the lock that was held = %s, want holder", text(key("held")))
						}
					}
				}
			}
		})
	}
	a, b, c := contender{"a", "tokenA"}, contender{"b", "tokenB"}, contender{"c", "tokenC"}

	t.Run("TwoWantTheSame", func(t *testing.T) {
		do("FLUSHALL")
		for _, fences := range []int64{0, 1, 1} { // without a counter, one is made, and it is there
			rival := contender{"a", "rival"}
			answers := together(t, s, acquires(t, fences, a, b, rival))
			if _, ok := answers[0].(int64); !ok || !isHeld(answers[2], "tokenA") {
				t.Errorf("answers = %q, want a grant to the first, and to the last that the first holds it", answers)
			}
			if text(key("a")) != "tokenA" || fences > 0 && text(key("a")+":fence") != fmt.Sprint(answers[0]) {
				t.Errorf("holder = %s, want tokenA; fence = %v", text(key("a")), answers[0])
			}
			together(t, s, releases(t, a, b))
		}
	})

	t.Run("TwoGiveUpTheSame", func(t *testing.T) {
		do("FLUSHALL")
		together(t, s, acquires(t, 1, a, b))
		answers := together(t, s, releases(t, a, b, a))
		if answers[0] != int64(1) || answers[1] != int64(1) || answers[2] != nil {
			t.Errorf("releases = %q, want 1, 1, and nil: it is gone", answers)
		}
	})

	// Nothing is held, and nobody queues: the common case is tried first.
	t.Run("NoCounters", func(t *testing.T) {
		const hex = "0x00000000000001" // as long as the time in microseconds, and less
		const nan = "nan(00000000000)" // likewise as long, and neither less nor more
		none := map[string]string{"c": "FENCE", "d": "WRONGTYPE", "e": "FENCE", "f": "FENCE"}
		for _, names := range []string{"acdef", "cdefa", "c", "d", "e", "f"} {
			do("FLUSHALL")
			do("SET", key("c")+":fence", "seven")
			do("RPUSH", key("d")+":fence", "no counter")
			do("SET", key("e")+":fence", hex)
			do("SET", key("f")+":fence", nan)
			var cs []contender
			for _, name := range strings.Split(names, "") {
				cs = append(cs, contender{name, "token " + name})
			}
			for i, answer := range together(t, s, acquires(t, 1, cs...)) {
				if want := none[cs[i].name]; want != "" && !isError(answer, want) {
					t.Errorf("%s of %s: answer = %q, want %s", cs[i].name, names, answer, want)
				} else if _, ok := answer.(int64); want == "" && !ok {
					t.Errorf("%s of %s: answer = %q, want a grant", cs[i].name, names, answer)
				}
			}
			if do("EXISTS", key("c"), key("d"), key("e"), key("f")) != int64(0) || text(key("f")+":fence") != nan || text(key("c")+":fence") != "seven" ||
				text(key("e")+":fence") != hex || do("LLEN", key("d")+":fence") != int64(1) {
				t.Errorf("%s: locks = %v, counters = %s, %s, %s, a list of %v, want none, and the counters as before", names,
					do("EXISTS", key("c"), key("d"), key("e"), key("f")), text(key("c")+":fence"), text(key("e")+":fence"), text(key("f")+":fence"), do("LLEN", key("d")+":fence"))
			}
		}
	})

	// Nobody writes such a counter; what follows it is greater all the same.
	t.Run("CountersSpeltOtherwise", func(t *testing.T) {
		for _, all := range [][]contender{{a}, {a, b}} {
			for _, odd := range []string{"1.50000000000e15", "0x05543df729c000"} { // 1.5e15, as long as the time in microseconds
				do("FLUSHALL")
				do("SET", key("a")+":fence", odd)
				for range 2 {
					fence, ok := together(t, s, acquires(t, 1, all...))[0].(int64)
					if !ok || fence <= 1.5e15 || text(key("a")+":fence") != fmt.Sprint(fence) {
						t.Errorf("fence after %s of %d = %d, then counted %s, want more than 1.5e15, and so counted", odd, len(all), fence, text(key("a")+":fence"))
					}
					together(t, s, releases(t, all...))
				}
			}
		}
	})

	t.Run("NoLocksNoCounters", func(t *testing.T) {
		do("FLUSHALL")
		do("RPUSH", key("b"), "no lock")
		do("SET", key("c")+":fence", "seven")
		d := contender{"d", "tokenD"}
		do("RPUSH", key("d")+":fence", "no counter")
		answers := together(t, s, acquires(t, 1, a, b, c, d))
		if _, ok := answers[0].(int64); !ok || text(key("a")) != "tokenA" {
			t.Errorf("answer = %q, want a grant: what is amiss with others is theirs", answers[0])
		}
		if !isError(answers[1], "WRONGTYPE") || !isError(answers[2], "FENCE") || !isError(answers[3], "WRONGTYPE") {
			t.Errorf("answers = %q, want WRONGTYPE, FENCE, WRONGTYPE", answers[1:])
		}
		if text(key("c")+":fence") != "seven" || do("EXISTS", key("c"), key("d")) != int64(0) {
			t.Errorf("counter = %s, locks = %v, want seven as before, and none", text(key("c")+":fence"), do("EXISTS", key("c"), key("d")))
		}
		answers = together(t, s, releases(t, a, b, c))
		if answers[0] != int64(1) || !isError(answers[1], "WRONGTYPE") || answers[2] != nil {
			t.Errorf("releases = %q, want 1, WRONGTYPE and nil", answers)
		}
	})

	t.Run("CountersAheadAndLost", func(t *testing.T) {
		do("FLUSHALL")
		ahead := time.Now().Add(time.Hour).UnixMicro()
		do("SET", key("a")+":fence", ahead)
		for i := range int64(2) {
			before := time.Now().UnixMicro()
			answers := together(t, s, acquires(t, 1, a, b))
			if answers[0] != ahead+1+2*i {
				t.Errorf("fence = %v, want %d: one more than the last", answers[0], ahead+1+2*i)
			}
			if got := answers[1].(int64); got < before-1_000_000+512*(1-i) {
				t.Errorf("fence = %d, want the server's time, about %d, or more", got, before)
			}
			together(t, s, releases(t, a, b))
			if alone := together(t, s, acquires(t, 1, a))[0]; alone != ahead+2+2*i {
				t.Errorf("fence = %v, want %d: one more than the last", alone, ahead+2+2*i)
			}
			together(t, s, releases(t, a))
		}
		// What was lost may have been ahead of the clock by 512. So much may pass unseen between
		// two questions: then there is nothing to be seen.
		clock := func() int64 {
			now := do("TIME").([]any)
			var sec, us int64
			fmt.Sscan(fmt.Sprintf("%s %s", now[0], now[1]), &sec, &us)
			return sec*1_000_000 + us
		}
		for _, all := range [][]contender{{c}, {c, {"d", "tokenD"}}} {
			for limit := time.Now().Add(20 * time.Second); ; {
				do("FLUSHALL")
				before := clock()
				answers := together(t, s, acquires(t, 1, all...))
				after := clock()
				for i, answer := range answers {
					if got := answer.(int64); got < before+512 || text(key(all[i].name)+":fence") != fmt.Sprint(got) {
						t.Errorf("fence without a counter = %d, then counted %s, want %d or more, and so counted", got, text(key(all[i].name)+":fence"), before+512)
					}
				}
				if after < before+512 {
					break
				}
				if time.Now().After(limit) {
					t.Log("NOT PROVEN: by how much a fence without a counter is ahead of the clock: this machine is too slow")
					break
				}
			}
		}
	})

	t.Run("AQueue", func(t *testing.T) {
		do("FLUSHALL")
		entry := "line 60000 1 successor"
		do("RPUSH", key("a")+":queue", entry)
		sub := s.Pool().Get()
		defer sub.Close()
		heard := redis.PubSubConn{Conn: sub}
		if err := heard.Subscribe(key("a") + ":queue:line"); err != nil {
			t.Fatal(err)
		}
		if _, ok := heard.Receive().(redis.Subscription); !ok {
			t.Fatal("no subscription")
		}
		for _, company := range [][]contender{nil, {b}} {
			all := append([]contender{a}, company...)
			answers := together(t, s, acquires(t, 1, all...)) // a has lapsed, and somebody waits for it
			if !isHeld(answers[0], "successor") {
				t.Errorf("answer in company of %v = %q, want that the successor holds it", company, answers[0])
			}
			for i := range company {
				if _, ok := answers[i+1].(int64); !ok {
					t.Errorf("answer = %q, want a grant: nobody waits for that", answers[i+1])
				}
			}
			do("SET", key("a"), "tokenA", "PX", 60_000)
			do("RPUSH", key("a")+":queue", entry)
			for _, answer := range together(t, s, releases(t, all...)) {
				if answer != int64(1) {
					t.Errorf("release in company of %v = %q, want 1", company, answer)
				}
			}
			if text(key("a")) != "successor" || do("EXISTS", key("b")) != int64(0) {
				t.Errorf("in company of %v: holder = %s, want the successor", company, text(key("a")))
			}
			if late := together(t, s, releases(t, all...))[0]; fmt.Sprintf("%s", late) != "successor" || text(key("a")) != "successor" {
				t.Errorf("a second release in company of %v = %q, holder = %s, want the successor to hold it still", company, late, text(key("a")))
			}
			do("DEL", key("a"))
			do("RPUSH", key("a")+":queue", entry)
		}
	})

	t.Run("WhoListens", func(t *testing.T) {
		do("FLUSHALL")
		sub := s.Pool().Get()
		defer sub.Close()
		heard := redis.PubSubConn{Conn: sub}
		if err := heard.Subscribe(key("a")+":free", key("b")+":free"); err != nil {
			t.Fatal(err)
		}
		heard.Receive()
		heard.Receive()
		together(t, s, acquires(t, 1, a, b))
		together(t, s, releases(t, a, b))
		together(t, s, acquires(t, 1, a))
		together(t, s, releases(t, a))
		for _, want := range []contender{a, b, a} {
			if m, ok := heard.ReceiveWithTimeout(20 * time.Second).(redis.Message); !ok || string(m.Data) != want.token || m.Channel != key(want.name)+":free" {
				t.Errorf("heard = %v, want %s on the channel of %s", m, want.token, want.name)
			}
		}
	})
}

// TestCompany: many contenders of one process, of whom each wants any of some locks: none is
// granted twice, every fence is greater than the one before, and what they ask at the same
// time travels together.
func TestCompany(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := open(t, s, strategy.Options{TTL: time.Minute})
	const contenders, names, rounds = 48, 16, 60
	type held struct {
		by   atomic.Int32
		last uint64 // the holder's alone
	}
	state := make([]held, names)
	var wg sync.WaitGroup
	var grants atomic.Int64
	for i := range contenders {
		wg.Go(func() {
			for round := range rounds {
				n := (i*7 + round*5) % names
				lease, err := locks.NewLock(fmt.Sprint("shared", n)).TryAcquire(t.Context())
				if errors.Is(err, strategy.ErrHeld) {
					continue
				}
				if err != nil {
					t.Errorf("TryAcquire() = %v, want a lease or ErrHeld", err)
					return
				}
				if other := state[n].by.Swap(int32(i + 1)); other != 0 {
					t.Errorf("lock %d was granted to %d while %d holds it", n, i, other-1)
				}
				fence, _ := lease.Fence()
				if fence <= state[n].last {
					t.Errorf("fence of lock %d = %d after %d", n, fence, state[n].last)
				}
				state[n].last = fence
				grants.Add(1)
				state[n].by.Store(0)
				if err := lease.Release(t.Context()); err != nil {
					t.Errorf("Release() = %v, want nil", err)
				}
			}
		})
	}
	wg.Wait()
	if got := grants.Load(); got < names {
		t.Errorf("grants = %d, want some for each lock", got)
	}
	calls, err := s.Calls(t.Context())
	if err != nil {
		redistest.Skip(t, err, "that what is asked at the same time travels together")
	}
	if asked := contenders*rounds + grants.Load(); calls["evalsha"]+calls["eval"] >= asked {
		t.Errorf("requests = %d for %d calls, want fewer", calls["evalsha"]+calls["eval"], asked)
	}
}
