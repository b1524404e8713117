// The rules by which the protocol reads replies and errors, and what it notes of each node: tables, and
// moments that are forced in virtual time.
package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/strategy"
)

// A says is a node that answers a script as the test has it.
type says struct {
	driver.Node // nil
	i           int
	eval        func(i int, script string, args []any) (any, error)
	info        func(section string) (any, error) // nil: it refuses
	disordered  bool
}

func (n *says) Name() string  { return fmt.Sprint("n", n.i+1) }
func (n *says) Ordered() bool { return !n.disordered }
func (n *says) Use() error    { return nil }
func (n *says) Close() error  { return nil }

func (n *says) Probe(context.Context, time.Time) uint64 { return 0 }

func (n *says) Subscribe(context.Context, string, func([]byte, error)) (func(), error) {
	_, err := n.eval(n.i, "subscribe", nil)
	return func() {}, err
}

func (n *says) Do(_ context.Context, _ time.Time, _, section string, _ ...any) (any, error) {
	if n.info == nil {
		return nil, failed(strategy.ErrRefused)
	}
	return n.info(section)
}
func (n *says) Eval(ctx context.Context, _ time.Time, s *driver.Script, _ []string, args ...any) (any, error) {
	if ctx.Err() != nil {
		return nil, failed(strategy.ErrUnsent)
	}
	return n.eval(n.i, s.Name(), args)
}

// saying is the protocol on n such nodes.
func saying(n int, eval func(i int, script string, args []any) (any, error), options ...Option) *protocol {
	var nodes []driver.Node
	for i := range n {
		nodes = append(nodes, &says{i: i, eval: eval})
	}
	return On(nodes, options...).(*protocol)
}

func failed(kind error) error {
	return &strategy.ServerError{Node: "n", Kind: kind, Err: errors.New("as the test has it")}
}

func aClaim() driver.Claim {
	return driver.Claim{Name: "n", Key: "lock:{n}", Token: "mine", Owner: "mine", TTL: 10 * time.Second, Due: time.Now().Add(time.Minute)}
}

// TestReplies: what each reply of a vote means, and what it tells of the longest TTL. Any other is refused as
// one that no lock gives.
func TestReplies(t *testing.T) {
	b := func(s string) []byte { return []byte(s) }
	const day = 24 * 60 * 60 * 1000
	for _, c := range []struct {
		reply  any
		fences bool
		want   string
		known  int64
	}{
		{int64(0), false, "twin", 0},
		{int64(0), true, "twin", 0},
		{int64(1), false, "granted", 1},
		{int64(5000), false, "granted", 5000},
		{int64(2 * day), false, "granted", day},
		{int64(5000), true, "bad", 0},
		{int64(-1), false, "bad", 0},
		{b("x"), false, "bad", 0},
		{nil, false, "bad", 0},
		{[]any{b("x"), int64(3000), int64(5000)}, false, "held by x for 3s", 5000},
		{[]any{b("x"), int64(3000), int64(5000)}, true, "held by x for 3s", 5000},
		{[]any{b(""), int64(-1), int64(0)}, false, "held by  for -1ns", 0},
		{[]any{"x", int64(3000), int64(5000)}, false, "bad", 0},
		{[]any{b("x"), b("3000"), int64(5000)}, false, "bad", 0},
		{[]any{b("x"), int64(3000), b("5000")}, false, "bad", 0},
		{[]any{b("guard"), b("empty"), int64(3000), int64(5000)}, false, "empty for 3s", 5000},
		{[]any{b("unasked"), b("empty"), int64(5000), int64(5000)}, false, "empty for 5s once asked", 5000},
		{[]any{b("guard"), b("restarted"), int64(-3000), int64(5000)}, true, "restarted for 0s", 5000},
		{[]any{b("other"), b("empty"), int64(3000), int64(5000)}, false, "bad", 0},
		{[]any{b("guard"), b("empty"), b("3000"), int64(5000)}, false, "bad", 0},
		{[]any{b("guard"), b("empty"), int64(3000), b("5000")}, false, "bad", 0},
		{[]any{int64(5000), int64(7), int64(1), int64(9), b("g")}, true, "granted {7 true 9 g}", 5000},
		{[]any{int64(1), int64(0), int64(0), int64(0), b("")}, true, "granted {0 false 0 }", 1},
		{[]any{int64(1), int64(maxFence), int64(2), int64(9), b("g")}, true, "granted {9007199254740991 false 9 g}", 1},
		{[]any{int64(5000), int64(7), int64(1), int64(9), b("g")}, false, "bad", 0},
		{[]any{int64(0), int64(7), int64(1), int64(9), b("g")}, true, "bad", 0},
		{[]any{int64(1), int64(-1), int64(1), int64(9), b("g")}, true, "bad", 0},
		{[]any{int64(1), int64(maxFence + 1), int64(1), int64(9), b("g")}, true, "bad", 0},
		{[]any{int64(1), int64(7), b("1"), int64(9), b("g")}, true, "bad", 0},
		{[]any{int64(1), int64(7), int64(1), int64(9), int64(1)}, true, "bad", 0},
		{[]any{}, true, "bad", 0},
	} {
		p := saying(1, nil)
		p.fences = c.fences
		said := make([]fenceReply, 1)
		err := p.readVote(aClaim(), 0, c.reply, said)
		var held *strategy.HeldError
		var guard *GuardError
		got := "bad"
		switch {
		case err == nil && c.fences:
			got = fmt.Sprint("granted ", said[0])
		case err == nil:
			got = "granted"
		case err == errTwin:
			got = "twin"
		case errors.As(err, &held):
			got = fmt.Sprintf("held by %s for %v", held.Holder, held.TTL)
		case errors.As(err, &guard) && errors.Is(err, strategy.ErrRefused):
			got = fmt.Sprintf("%s for %v", guard.Reason, guard.For)
			if !guard.Begun {
				got += " once asked"
			}
		case !errors.Is(err, strategy.ErrUnknown):
			got = err.Error()
		}
		if got != c.want || p.known.Load() != c.known {
			t.Errorf("%v (fences: %t) is read as %s, and the longest TTL is %d; want %s, and %d", c.reply, c.fences, got, p.known.Load(), c.want, c.known)
		}
	}
}

// TestRequests: the keys and arguments of each operation's requests, and by when they have to be answered.
func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lock, guard, fence = "lock:{n} ", "lock:redlock:guard ", "lock:{n}:fence "
		c := aClaim()
		c.FenceTTL = 2 * time.Hour
		vote := []any{int64(1), int64(7), int64(1), int64(9), []byte("gen")}
		acquire := func(p *protocol) error { _, err := p.Acquire(t.Context(), c); return err }
		adopt := func(p *protocol) error { _, err := p.Adopt(t.Context(), c, "old"); return err }
		extend := func(p *protocol) error { _, err := p.Extend(t.Context(), c); return err }
		release := func(p *protocol) error { _, err := p.Release(t.Context(), c); return err }
		inspect := func(p *protocol) error { _, err := p.Inspect(t.Context(), c); return err }
		join := func(p *protocol) error {
			votes, r := newVotes(1, absent), newRound(t.Context())
			defer r.end(nil)
			votes.begin(&r, 0)
			p.join(r.all, c, votes, 0, time.Now().Add(-time.Second))
			return nil
		}
		checkVote := func(p *protocol) error { return p.checkVote(t.Context(), p.due(c), p.nodes[0], c.TTL) }
		bootstrap := func(p *protocol) error { return Bootstrap(t.Context(), p.nodes) }
		fenced, hour, bare := WithFences(), WithMaxTTL(time.Hour), WithoutGuard()
		for _, r := range []struct {
			do      func(*protocol) error
			own     []Option
			replies []any
			asked   []string
		}{
			{acquire, []Option{hour}, []any{int64(1)}, []string{"acquire " + lock + guard + "mine 10000 3600000"}},
			{acquire, []Option{bare}, []any{int64(1)}, []string{"acquire " + lock + "mine 10000 10000"}},
			{acquire, []Option{hour, fenced}, []any{vote, int64(1)}, []string{
				"acquire " + lock + guard + fence + "mine 10000 3600000",
				"writeback " + lock + guard + fence + "mine 9 gen 3600000 7200000",
			}},
			{adopt, []Option{hour, fenced}, []any{vote, int64(1)}, []string{
				"adopt " + lock + guard + fence + "old 10000 mine 3600000 lock:{n}:free",
				"writeback " + lock + guard + fence + "mine 9 gen 3600000 7200000",
			}},
			{adopt, []Option{hour}, []any{int64(1)}, []string{"adopt " + lock + guard + "old 10000 mine 3600000 lock:{n}:free"}},
			{extend, []Option{hour}, []any{int64(1)}, []string{"extend " + lock + "mine 10000"}},
			{release, []Option{hour}, []any{int64(1)}, []string{"release " + lock + "mine lock:{n}:free"}},
			{inspect, []Option{hour}, []any{[]any{nil, int64(-2), int64(0)}}, []string{"inspect " + lock}},
			{inspect, []Option{hour, fenced}, []any{[]any{nil, int64(-2), int64(7)}}, []string{"inspect " + lock + fence}},
			{join, []Option{hour}, []any{int64(1)}, []string{"join " + lock + guard + "mine 9000 3600000"}},
			{join, []Option{bare}, []any{int64(1)}, []string{"join " + lock + "mine 9000 10000"}},
			{checkVote, []Option{hour}, []any{int64(1)}, []string{"check " + guard + "3600000"}},
			{bootstrap, []Option{hour}, []any{int64(1)}, []string{"bootstrap " + guard}},
		} {
			n := &prompt{Dialog: locktest.Dialog{Replies: r.replies}}
			p := On([]driver.Node{n}, append(r.own, WithNodeTimeout(time.Second))...).(*protocol)
			if err := r.do(p); err != nil {
				t.Errorf("after %q: %v, want nil", n.Asked, err)
			}
			p.requests.Wait()
			for i := range r.asked {
				r.asked[i] = strings.TrimSpace(r.asked[i])
			}
			within := time.Second
			if r.asked[0] == "bootstrap "+strings.TrimSpace(guard) {
				within = 10 * time.Second
			}
			if !slices.Equal(n.Asked, r.asked) || n.longest != within {
				t.Errorf("asked are %q, and may take %v, want %q, and %v", n.Asked, n.longest, r.asked, within)
			}
		}
	})
}

// A prompt is a dialog that notes how long its scripts may take.
type prompt struct {
	locktest.Dialog
	longest time.Duration
}

func (n *prompt) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	n.longest = max(n.longest, time.Until(due))
	return n.Dialog.Eval(ctx, due, s, keys, args...)
}

// TestStandings: what is known of the token on a node after each answer to Acquire, and whether it is expected to answer then.
func TestStandings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			what   string
			reply  any
			err    error
			want   standing
			silent bool
		}{
			{"granted", int64(1), nil, present, false},
			{"twin", int64(0), nil, absent, false},
			{"held", []any{[]byte("x"), int64(5), int64(0)}, nil, absent, false},
			{"guarded", []any{[]byte("guard"), []byte("empty"), int64(5), int64(0)}, nil, absent, false},
			{"refused", nil, failed(strategy.ErrRefused), absent, false},
			{"not sent", nil, failed(strategy.ErrUnsent), absent, true},
			{"unknown", nil, failed(strategy.ErrUnknown), unknown, true},
			{"nonsense", []byte("x"), nil, unknown, true},
		} {
			p := saying(1, func(int, string, []any) (any, error) { return c.reply, c.err })
			votes := newVotes(1, unknown)
			p.collect(t.Context(), aClaim(), votes, (*voteCount).complete, func(ctx context.Context, due time.Time, n driver.Node) (any, error) {
				return n.Eval(ctx, due, acquire, nil)
			})
			twin := p.twin.Load() == 1
			if got := votes.at(0); got != c.want || p.expected(0) == c.silent || twin != (c.what == "twin") {
				t.Errorf("after an answer that is %s the standing is %d, want %d; a twin: %t; it is expected to answer: %t, want %t",
					c.what, got, c.want, twin, p.expected(0), !c.silent)
			}
			for _, err := range []error{errAbsent, nil} { // no request, and another answer
				p.ask(t.Context(), newVotes(1, unknown), p.all, time.Now(), (*voteCount).complete, func(context.Context, int) error { return err })
				if silent := c.silent && err != nil; p.expected(0) == silent {
					t.Errorf("after an answer that is %s, and %v, the node is expected to answer: %t, want %t", c.what, err, silent, !silent)
				}
			}
		}
	})
}

// TestOutcomes plays all answers of three nodes to a release, an undo and an extension.
func TestOutcomes(t *testing.T) {
	type answer struct {
		what  string
		reply any
		err   error
	}
	answers := []answer{
		{"yes", int64(1), nil},
		{"gone", nil, nil},
		{"other", []byte("other"), nil},
		{"down", nil, failed(strategy.ErrUnsent)},
		{"silent", nil, failed(strategy.ErrUnknown)},
		{"nonsense", []any{}, nil},
	}
	outcome := func(partial bool, err error) (what string) {
		switch {
		case err == nil:
			what = "done"
		case errors.Is(err, strategy.ErrLost) && !errors.Is(err, strategy.ErrNoQuorum):
			what = "lost"
		case errors.Is(err, strategy.ErrNoQuorum):
			if what = "no quorum"; errors.Is(err, strategy.ErrUnknown) {
				what += ", unknown"
			}
		default:
			what = err.Error()
		}
		if partial {
			what += ", partial"
		}
		return what
	}
	synctest.Test(t, func(t *testing.T) {
		for i := range 6 * 6 * 6 {
			is := []answer{answers[i/36], answers[i/6%6], answers[i%6]}
			all := fmt.Sprint(is[0].what, " ", is[1].what, " ", is[2].what)
			yes, lost := strings.Count(all, "yes"), strings.Count(all, "gone")+strings.Count(all, "other")
			left, down := 3-yes-lost, strings.Count(all, "down")
			p := saying(3, func(i int, _ string, _ []any) (any, error) { return is[i].reply, is[i].err })
			check := func(call, got, want string) {
				if got != want {
					t.Errorf("%s where the nodes' answers are %s: %s, want %s", call, all, got, want)
				}
			}
			held := func() driver.Claim {
				c, votes := aClaim(), newVotes(3, present)
				for i := range 3 {
					votes.granted(i, c.TTL)
				}
				c.Grant = driver.Grant{Start: time.Now(), TTL: c.TTL, State: votes}
				return c
			}
			want := "done"
			switch {
			case yes+left < 2:
				want = "lost"
			case left > 1 && lost+down == 3:
				want = "no quorum"
			case left > 1:
				want = "no quorum, unknown"
			}
			if left > 0 {
				want += ", partial"
			}
			out, err := p.Release(t.Context(), held())
			check("Release()", outcome(out.Partial, err), want)
			c := held()
			c.Grant.State = nil // as an operator's
			out, err = p.ForceRelease(t.Context(), c)
			check("ForceRelease()", outcome(out.Partial, err), want)
			check("Undo() is done:", fmt.Sprint(p.Undo(t.Context(), held()) == nil), fmt.Sprint(left == 0))

			g, err := p.Extend(t.Context(), held())
			p.Close()
			switch {
			case yes >= 2:
				check("Extend()", outcome(false, err), "done")
			case lost >= 2:
				check("Extend()", outcome(false, err), "lost")
				var e *strategy.LostError
				if all == "other other other" && (!errors.As(err, &e) || e.Holder != "other") {
					t.Errorf("Extend() of a lock that another has on all nodes = %v, want its holder", err)
				}
			case lost+down < 3:
				check("Extend()", outcome(g.Partial, err), "no quorum, unknown, partial")
			default: // unknown if it did not wait for the last
				check("Extend()", strings.Replace(outcome(g.Partial, err), ", unknown", "", 1), "no quorum, partial")
			}
		}
	})
}

// TestPartial: a grant, and an extension, say whether a node may have the token that has not said so.
func TestPartial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yes := error(nil)
		for _, c := range []struct {
			answers []error // the first comes before the others
			want    bool
		}{
			{[]error{yes}, false},
			{[]error{yes, yes}, false},
			{[]error{yes, yes, yes}, true}, // the quorum is the first two
			{[]error{failed(strategy.ErrUnknown), yes, yes}, true},
		} {
			p := saying(len(c.answers), func(i int, _ string, _ []any) (any, error) {
				if i > 0 {
					time.Sleep(time.Millisecond)
				}
				return int64(1), c.answers[i]
			})
			mine := aClaim()
			var err error
			mine.Grant, err = p.Acquire(t.Context(), mine)
			before := time.Now()
			extended, err2 := p.Extend(t.Context(), mine)
			if !extended.Start.Equal(before) {
				t.Errorf("Extend() counts the TTL from %v after its call on", extended.Start.Sub(before))
			}
			p.Close()
			if err != nil || err2 != nil || mine.Grant.Partial != c.want || extended.Partial != c.want {
				t.Errorf("where the nodes answer %v: Acquire() = partial %t, %v, Extend() = partial %t, %v, want partial %t", c.answers, mine.Grant.Partial, err, extended.Partial, err2, c.want)
			}
		}
	})
}

// TestTooEarly: a token that is not there may still arrive, if the request for it was not answered and the node
// keeps no order.
func TestTooEarly(t *testing.T) {
	for _, c := range []struct {
		standing   standing
		disordered bool
		want       standing
	}{{unknown, true, unknown}, {unknown, false, absent}, {present, true, absent}, {present, false, absent}} {
		p := saying(1, nil)
		p.nodes[0].(*says).disordered = c.disordered
		votes := newVotes(1, c.standing)
		err := p.notThere(aClaim(), votes, 0, nil)
		v := votes.votes[0]
		if early := c.want == unknown; v.standing != c.want || v.early != early || errors.Is(err, strategy.ErrUnknown) != early {
			t.Errorf("a token with standing %d that is not found (disordered: %t) has standing %d, early: %t, %v; want %d", c.standing, c.disordered, v.standing, v.early, err, c.want)
		}
	}

	// That it has answered is of one round: a node that is silent in the next may be frozen.
	said := []error{nil, failed(strategy.ErrRefused)}
	p := saying(2, func(i int, _ string, _ []any) (any, error) { return nil, said[i] })
	p.nodes[0].(*says).disordered = true
	undo := aClaim()
	undo.Grant.State = newVotes(2, unknown)
	for _, answered := range []bool{true, false} {
		if err := p.Undo(t.Context(), undo); err == nil || errors.Is(err, strategy.ErrRefused) != answered {
			t.Errorf("Undo() = %v, want an error of nodes that have answered: %t", err, answered)
		}
		said[0] = failed(strategy.ErrUnknown)
	}
}

// TestDue: a request ends with its operation, and before that with the node's time-out.
func TestDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			own           []Option
			pace          int64 // of the last quorum
			ttl, op, want time.Duration
		}{
			{nil, 1, 0, time.Second, 50 * time.Millisecond}, // Inspect
			{nil, 1, 10 * time.Second, time.Second, 50 * time.Millisecond},
			{nil, 1, 200 * time.Millisecond, time.Second, 10 * time.Millisecond},
			{nil, 1, 20 * time.Millisecond, time.Second, 5 * time.Millisecond},
			{nil, 1, 10 * time.Second, 30 * time.Millisecond, 30 * time.Millisecond},
			{nil, 0, 10 * time.Second, time.Second, 500 * time.Millisecond}, // it dials
			{[]Option{WithNodeTimeout(70 * time.Millisecond)}, 0, 200 * time.Millisecond, time.Second, 70 * time.Millisecond},
			{[]Option{WithNodeTimeout(70 * time.Millisecond)}, 1, 200 * time.Millisecond, time.Second, 70 * time.Millisecond},
			{[]Option{WithNodeTimeout(time.Minute)}, 1, 200 * time.Millisecond, time.Second, time.Second},
		} {
			p := saying(1, nil, c.own...)
			p.pace.Store(c.pace)
			due := p.due(driver.Claim{TTL: c.ttl, Due: time.Now().Add(c.op)})
			if got := time.Until(due); got != c.want {
				t.Errorf("with a TTL of %v and %v for the operation a request may take %v, want %v", c.ttl, c.op, got, c.want)
			}
		}
	})
}

// TestLimits: the least and the greatest that is allowed of each setting. An error says what is allowed.
func TestLimits(t *testing.T) {
	o := strategy.Options{TTL: 10 * time.Second}
	most := o.TTL - driver.Drift(o.TTL) // of the validity
	a, b := &says{i: 0}, &says{i: 1}
	same := &says{i: 0} // by its name, as behind a proxy
	incomparable := struct {
		driver.Node
		_ []int
	}{Node: a}
	allowed := map[string][]Option{
		"a short NodeTimeout":  {WithNodeTimeout(time.Millisecond)},
		"no MinValidity":       {WithMinValidity(0)},
		"the most MinValidity": {WithMinValidity(most - 1)},
		"a MaxTTL of the TTL":  {WithMaxTTL(o.TTL)},
		"the longest MaxTTL":   {WithMaxTTL(contract.MaxTTL)},
		"fences":               {WithFences()},
		"no guard":             {WithoutGuard()},
	}
	refused := map[string][]Option{
		"a NodeTimeout below 1 ms":   {WithNodeTimeout(time.Millisecond - 1)},
		"a negative MinValidity":     {WithMinValidity(-1)},
		"a MinValidity of all":       {WithMinValidity(most)},
		"a MaxTTL below the TTL":     {WithMaxTTL(o.TTL - time.Millisecond)},
		"a MaxTTL of no whole ms":    {WithMaxTTL(o.TTL + time.Microsecond)},
		"a MaxTTL beyond all":        {WithMaxTTL(contract.MaxTTL + time.Millisecond)},
		"a MaxTTL without the guard": {WithMaxTTL(o.TTL), WithoutGuard()},
		"fences without the guard":   {WithFences(), WithoutGuard()},
		"an option that is nil":      {nil},
	}
	for what, options := range allowed {
		if err := saying(1, nil, options...).Validate(o); err != nil {
			t.Errorf("%s: Validate() = %v, want nil", what, err)
		}
	}
	for what, options := range refused {
		if err := saying(1, nil, options...).Validate(o); err == nil || !strings.Contains(err.Error(), "allowed") {
			t.Errorf("%s: Validate() = %v, want what is allowed", what, err)
		}
	}
	for ttl, want := range map[time.Duration]bool{contract.MinTTL: true, contract.MinTTL - time.Millisecond: false} {
		if err := saying(1, nil, WithMaxTTL(ttl)).Validate(strategy.Options{TTL: time.Millisecond}); (err == nil) != want {
			t.Errorf("Validate() of a MaxTTL of %v = %v, want that it is allowed: %t", ttl, err, want)
		}
	}
	for _, c := range []struct {
		nodes []driver.Node
		want  string
	}{
		{nil, "redlock has no servers: allowed are"},
		{[]driver.Node{a, nil}, "node 2 is nil: allowed is"},
		{[]driver.Node{a, b, a}, "nodes 1 and 3 are both n1: allowed is each server once"},
		{[]driver.Node{a, b, same}, "<nil>"},
		{[]driver.Node{incomparable, incomparable}, "<nil>"},
	} {
		if err := On(c.nodes).(*protocol).Validate(o); !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("Validate() of %d nodes = %v, want %s", len(c.nodes), err, c.want)
		}
	}
}

// TestCheck: whichever of its steps finds a fault, Check says so; not if a user may not see INFO.
func TestCheck(t *testing.T) {
	o := strategy.Options{TTL: 10 * time.Second, OpTimeout: time.Minute, Key: strategy.DefaultKey, Wait: strategy.WaitNotification}
	for _, c := range []struct {
		at   string // which step fails
		err  error
		want error
		vote any // the answer to check.lua; nil: it votes
		own  []Option
	}{
		{"", nil, nil, nil, nil},
		{"default", failed(strategy.ErrUnsent), strategy.ErrUnsent, nil, nil},
		{"cluster", failed(strategy.ErrUnsent), strategy.ErrUnsent, nil, nil},
		{"cluster", failed(strategy.ErrRefused), nil, nil, nil},
		{"cluster", nil, errCluster, nil, nil}, // it belongs to one
		{"LOAD", failed(strategy.ErrUnsent), strategy.ErrUnsent, nil, nil},
		{"rights", failed(strategy.ErrUnsent), strategy.ErrUnsent, nil, nil},
		{"inspect", failed(strategy.ErrUnsent), strategy.ErrUnsent, nil, nil},
		{"check", failed(strategy.ErrUnsent), strategy.ErrUnsent, nil, nil},
		{"subscribe", failed(strategy.ErrUnsent), strategy.ErrUnsent, nil, nil},
		{"", nil, strategy.ErrRefused, []any{[]byte("guard"), []byte("empty"), int64(3000), int64(5000)}, nil},
		{"", nil, strategy.ErrUnknown, int64(2), nil},
		{"", nil, nil, int64(2), []Option{WithoutGuard()}}, // it is not asked
	} {
		loaded := 0
		p := saying(1, func(_ int, script string, args []any) (any, error) {
			if script == "check" && args[0] != o.TTL.Milliseconds() {
				t.Errorf("Check() asks a node whether it votes for a TTL of %v ms, want that of the options, %v", args[0], o.TTL)
			}
			if script == c.at {
				return nil, c.err
			}
			if script == "check" && c.vote != nil {
				return c.vote, nil
			}
			return map[string]any{"rights": []any{}, "check": int64(1)}[script], nil
		}, c.own...)
		p.nodes[0].(*says).info = func(section string) (any, error) {
			if section == "LOAD" {
				loaded++
			}
			if section == c.at && c.err != nil {
				return nil, c.err
			}
			return []byte(map[bool]string{true: "cluster_enabled:1"}[section == c.at]), nil
		}
		err := p.Check(t.Context(), o)
		if !errors.Is(err, c.want) {
			t.Errorf("Check() where %q fails with %v = %v, want %v", c.at, c.err, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "n1: ") {
			t.Errorf("Check() where %q fails = %v, want the node's name", c.at, err)
		}
		if want := 10; c.at == "" && c.want == nil && loaded != want {
			t.Errorf("Check() loads %d scripts, want %d: all of redlock's, and its own", loaded, want)
		}
	}
}

// TestCheckAdvice: Check recommends Bootstrap for new servers; not if one of them was restarted, or votes. Then it warns of
// Bootstrap, if one is empty.
func TestCheckAdvice(t *testing.T) {
	o := strategy.Options{TTL: 10 * time.Second, OpTimeout: time.Minute, Key: strategy.DefaultKey, Wait: strategy.WaitPoll}
	const none = ""
	for why, want := range map[[2]string]string{
		{ReasonEmpty, ReasonEmpty}: bootstrapHelps, {ReasonEmpty, ReasonRestarted}: emptiedWaits, {ReasonEmpty, ""}: emptiedWaits, {"", ReasonEmpty}: emptiedWaits,
		{ReasonRestarted, ReasonRestarted}: none, {"", ReasonRestarted}: none, {"", ""}: none,
	} {
		p := saying(2, func(i int, script string, _ []any) (any, error) {
			if script == "check" && why[i] != "" {
				return []any{[]byte("guard"), []byte(why[i]), int64(3000), int64(5000)}, nil
			}
			return map[string]any{"rights": []any{}, "check": int64(1)}[script], nil
		})
		p.nodes[0].(*says).info = func(string) (any, error) { return []byte(nil), nil }
		p.nodes[1].(*says).info = p.nodes[0].(*says).info
		said := fmt.Sprint(p.Check(t.Context(), o))
		if well := said == "<nil>"; well != (why == [2]string{}) {
			t.Errorf("Check() of servers that wait because of %q = %s, want nil only if all vote", why, said)
		}
		for _, advice := range []string{bootstrapHelps, emptiedWaits} {
			if strings.Contains(said, advice) != (advice == want) {
				t.Errorf("Check() of servers that wait because of %q = %s, want the advice %q alone", why, said, want)
			}
		}
	}
}

// TestLongestOfGuards: what no lock can use, no guard and no answer count as nothing; the longest counts, and Check knows it.
func TestLongestOfGuards(t *testing.T) {
	field := func(text string) any { return []any{[]byte(text)} }
	for what, c := range map[string]struct {
		replies []any // nil: it fails
		want    time.Duration
	}{
		"the longest":    {[]any{field("5000"), field("10000"), field("7000")}, 10 * time.Second},
		"none":           {[]any{[]any{nil}, field("0"), nil}, 0},
		"one of several": {[]any{nil, field("5000"), field("x")}, 5 * time.Second},
		"garbage":        {[]any{field("-5"), field(""), []byte("5000")}, 0},
		"too long":       {[]any{field("99999999999"), field("1"), nil}, contract.MaxTTL},
	} {
		p := saying(3, nil)
		for i, n := range p.nodes {
			n.(*says).info = func(key string) (any, error) {
				if c.replies[i] == nil || key != GuardKey {
					return nil, failed(strategy.ErrUnsent)
				}
				return c.replies[i], nil
			}
		}
		if got := LongestTTL(t.Context(), time.Now().Add(time.Minute), p.nodes); got != c.want {
			t.Errorf("%s: LongestTTL() = %v, want %v", what, got, c.want)
		}
		p.Check(t.Context(), strategy.Options{TTL: time.Second, OpTimeout: time.Minute, Key: strategy.DefaultKey}) //nolint:errcheck // it fails
		if got := p.longest(0); got != c.want.Milliseconds() {
			t.Errorf("%s: after Check() the longest TTL is %d ms, want %v", what, got, c.want)
		}
	}
}

// TestRightsNeeded: Check tries what the scripts run on each key, and no more.
func TestRightsNeeded(t *testing.T) {
	const lock = "lock:{n} GET GETEX SET DEL PTTL PEXPIRE"
	for _, c := range []struct {
		own   []Option
		wait  strategy.Wait
		fence time.Duration
		want  string
	}{
		{nil, strategy.WaitNotification, 0, lock + " PUBLISH TIME HMGET HSET lock:{n}:free; lock:redlock:guard"},
		{nil, strategy.WaitPoll, 0, lock + " TIME HMGET HSET; lock:redlock:guard"},
		{[]Option{WithoutGuard()}, strategy.WaitPoll, 0, lock},
		{[]Option{WithFences()}, strategy.WaitPoll, time.Hour, lock + " TIME HMGET HSET; lock:redlock:guard; lock:{n}:fence HGET HMGET HSET PEXPIREAT"},
		{[]Option{WithFences()}, strategy.WaitPoll, 0, lock + " TIME HMGET HSET; lock:redlock:guard; lock:{n}:fence HGET HMGET HSET PERSIST"},
	} {
		var all []string
		claim := aClaim()
		claim.FenceTTL = c.fence
		for _, r := range saying(1, nil, c.own...).rights(claim, c.wait) {
			all = append(all, strings.TrimSpace(strings.Join(append([]string{r.Key}, append(r.Commands, r.Channel)...), " ")))
		}
		if got := strings.Join(all, "; "); got != c.want {
			t.Errorf("rights() with %d options are %s, want %s", len(c.own), got, c.want)
		}
	}
}

// TestInspect: a lock is held if a quorum shows one token, and is free only if nodes that fail could not change that.
func TestInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, free := []any{[]byte("x"), int64(5000), int64(7)}, []any{nil, int64(-2), int64(9)}
		for _, c := range []struct {
			replies []any // nil: it fails
			want    string
		}{
			{[]any{held, held, held}, "held"},
			{[]any{held, held, nil}, "held"},
			{[]any{held, free, free}, "free"},
			{[]any{held, free, nil}, "no quorum"},
			{[]any{free, free, nil}, "free"},
			{[]any{free, nil, nil}, "no quorum"},
			{[]any{held, held, []any{[]byte("x")}}, "held"},
			{[]any{held, free, []any{[]byte("x"), []byte("5000"), int64(7)}}, "no quorum"},
			{[]any{held, free, []any{[]byte("x"), int64(5000), []byte("7")}}, "no quorum"},
			{[]any{[]any{[]byte("x"), int64(9000), int64(7)}, held, nil}, "held"}, // one of two keeps it for 9 s: no quorum
		} {
			p := saying(3, func(i int, _ string, _ []any) (any, error) {
				if c.replies[i] == nil {
					return nil, failed(strategy.ErrUnsent)
				}
				return c.replies[i], nil
			})
			info, err := p.Inspect(t.Context(), aClaim())
			got := "free"
			switch {
			case errors.Is(err, strategy.ErrNoQuorum):
				got = "no quorum"
			case err != nil:
				got = err.Error()
			case info.Held && info.Token == "x" && info.TTL == 5*time.Second:
				got = "held"
			case info.Held:
				got = fmt.Sprint(info)
			}
			noted := uint64(0)
			for _, reply := range c.replies {
				if r, _ := reply.([]any); len(r) == 3 {
					n, _ := r[2].(int64)
					noted = max(noted, uint64(n))
				}
			}
			if err == nil && info.Fence != noted {
				t.Errorf("Inspect() where the nodes say %v has the fence %d, want the greatest, %d", c.replies, info.Fence, noted)
			}
			if got != c.want {
				t.Errorf("Inspect() where the nodes say %v: %s, want %s", c.replies, got, c.want)
			}
		}
	})
}

// TestTwinOnce: an attempt that finds a node to be another one, too, is refused; the next asks again.
func TestTwinOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reply := int64(0)
		p := saying(2, func(i int, _ string, _ []any) (any, error) {
			if i == 0 {
				return int64(1), nil
			}
			return reply, nil
		})
		for _, other := range []string{"another of the nodes", "n1", "n1"} { // the servers say which once they show their run ids
			if _, err := p.Acquire(t.Context(), aClaim()); !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "n2 and "+other+" are one server") {
				t.Errorf("Acquire() on a node that is another one, too = %v, want ErrRefused, with n2 and %s", err, other)
			}
			for _, n := range p.nodes {
				n.(*says).info = func(string) (any, error) { return []byte("run_id:x\r\n"), nil }
			}
		}
		for range 2 { // reported now; and found when an attempt had ended
			reply = 1
			if _, err := p.Acquire(t.Context(), aClaim()); err != nil {
				t.Errorf("Acquire() when it is no more = %v, want nil", err)
			}
			p.twin.Store(1)
			if _, err := p.Acquire(t.Context(), aClaim()); !errors.Is(err, strategy.ErrRefused) {
				t.Errorf("Acquire() after an attempt that found it late = %v, want ErrRefused", err)
			}
		}
	})
}

// TestRemembered: a quorum of nodes that remember has voted, or none can come any more.
func TestRemembered(t *testing.T) {
	for nodes, want := range map[string]bool{ // r: voted, and remembers; f: has forgotten; x: failed; .: has not answered
		"rrr..": true, "rrf..": false, "rrfx.": false, "rff..": false, "rrfxx": true, "rffx.": true, "fff..": true,
	} {
		vc, said := newCount(5, 3), make([]fenceReply, 5)
		for i, is := range nodes {
			said[i].remembers = is == 'r'
			switch is {
			case 'r', 'f':
				vc.note(i, nil)
			case 'x':
				vc.note(i, failed(strategy.ErrUnsent))
			}
		}
		if got := vc.remembered(said); got != want {
			t.Errorf("remembered() of %s = %t, want %t", nodes, got, want)
		}
	}
}

// TestNamed: an error has its node's name once.
func TestNamed(t *testing.T) {
	for _, text := range []string{"a: x", "x"} {
		if got := named("a", errors.New(text)); got.Error() != "a: x" {
			t.Errorf("the error %q of a is %q, want a: x", text, got)
		}
	}
}

// TestPatience: three times what the quorum took, and 1 … 50 ms.
func TestPatience(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{0: time.Millisecond, 2 * time.Millisecond: 6 * time.Millisecond, 16 * time.Millisecond: 48 * time.Millisecond, time.Second: 50 * time.Millisecond} {
		if got := patience(took); got != want {
			t.Errorf("patience(%v) = %v, want %v", took, got, want)
		}
	}
}

// TestUntil: an end of a vote is never noted earlier than the node may drop it, and ends with it.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		ends := ttl + driver.Drift(ttl)
		votes := newVotes(1, unknown)
		holds := func(when string, want int) {
			t.Helper()
			if got := len(votes.holding()); got != want {
				t.Errorf("%s %d nodes may have the token, want %d", when, got, want)
			}
		}
		time.Sleep(time.Hour)
		holds("where none has answered for an hour,", 1)
		votes.granted(0, ttl)
		votes.granted(0, time.Second) // it does not shorten
		time.Sleep(ends)
		holds("at the end of the TTL and the drift", 1)
		time.Sleep(time.Nanosecond)
		holds("after that", 0)

		votes.granted(0, ttl)
		was := votes.extending(0, ttl)
		votes.notExtended(0, was)
		time.Sleep(ends + 1)
		holds("when it was not extended,", 0)
		votes.granted(0, ttl)
		votes.extending(0, ttl)
		time.Sleep(2 * ends)
		holds("while it may have been extended,", 1)
		time.Sleep(time.Nanosecond)
		holds("after that", 0)
	})
}

// TestUndoneErrors: an undo that left something says why. If a node may be frozen, so that its TTL has not begun, the error
// leaves out what others have answered.
func TestUndoneErrors(t *testing.T) {
	refused, silent := failed(strategy.ErrRefused), failed(strategy.ErrUnknown)
	past, soon := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for _, c := range []struct {
		v      vote
		err    error
		frozen bool
		said   bool
	}{
		{vote{standing: unknown}, silent, true, true},
		{vote{standing: unknown}, refused, false, true},
		{vote{standing: unknown, early: true}, silent, false, true},
		{vote{standing: present, until: soon}, silent, false, true},
		{vote{standing: present, until: past}, silent, false, false},
		{vote{standing: absent}, silent, false, false},
		{vote{standing: unknown}, nil, false, false},
	} {
		votes, count := &nodeVotes{votes: []vote{c.v}}, newCount(1, 1)
		count.errs[0] = c.err
		if err := votes.undone(count); (err != nil) != c.said {
			t.Errorf("undone() of %+v and %v = %v; want an error: %t", c.v, c.err, err, c.said)
		}
		votes, count = &nodeVotes{votes: []vote{c.v, {standing: present, until: soon}}}, newCount(2, 2)
		count.errs[0], count.errs[1] = c.err, refused
		if err := votes.undone(count); err == nil || errors.Is(err, refused) == c.frozen {
			t.Errorf("undone() of %+v and %v, where another has refused, = %v; want the refusal: %t", c.v, c.err, err, !c.frozen)
		}
	}
}

// TestOneRequestAtATime: each node gets the requests of one claim one after the other, and none of a round that is over.
func TestOneRequestAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		votes := newVotes(1, unknown)
		first, second := newRound(t.Context()), newRound(t.Context())
		votes.begin(&first, time.Second)
		if votes.tryOccupy(0) != nil || votes.tryOccupy(0) == nil {
			t.Fatal("tryOccupy() twice: want that the first alone occupies the node")
		}
		start := time.Now()
		if err := votes.occupy(first.all, start.Add(time.Minute), 0); err != errBusy || time.Since(start) != time.Minute {
			t.Errorf("occupy() = %v after %v, want errBusy at due", err, time.Since(start))
		}
		waiting := make(chan error)
		go func() { waiting <- votes.occupy(first.all, time.Now().Add(time.Hour), 0) }()
		synctest.Wait()
		votes.begin(&second, time.Second)
		start = time.Now()
		if err := <-waiting; err != errOvertaken || time.Since(start) != time.Second {
			t.Errorf("occupy() of the last round = %v after %v, want errOvertaken after the patience", err, time.Since(start))
		}
		votes.free(0)
		if err := votes.occupy(newRound(t.Context()).all, time.Now().Add(time.Hour), 0); err != errOvertaken {
			t.Errorf("occupy() of another round = %v, want errOvertaken", err)
		}
		for _, ctx := range []context.Context{second.all, votes.toSilent(&second)} {
			if err := votes.occupy(ctx, time.Now().Add(time.Hour), 0); err != nil {
				t.Fatalf("occupy() of this round = %v, want nil: the node is free", err)
			}
			votes.free(0)
		}
		votes.cancelSilent()
		if context.Cause(votes.toSilent(&second)) != errOvertaken || second.all.Err() != nil {
			t.Errorf("after cancelSilent() the contexts end with %v and %v, want that of silent nodes alone to end", context.Cause(votes.toSilent(&second)), second.all.Err())
		}
		second.end(nil)

		votes.tryOccupy(0)
		p := saying(1, nil) // which is not asked
		if err := p.ask(t.Context(), votes, p.all, time.Now(), (*voteCount).complete, nil).errs[0]; !errors.Is(err, strategy.ErrUnsent) {
			t.Errorf("a request whose node is not free in time ends with %v, want ErrUnsent", err)
		}
	})
}

// TestLateAnswers: what comes when a round is over does not count.
func TestLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vc := newCount(3, 2)
		vc.enough = (*voteCount).complete
		vc.hear(0, nil)
		vc.end()
		vc.hear(1, nil)
		vc.end()
		vc.wait(t.Context(), nil)
		if vc.yes != 1 || vc.pending != 2 || vc.errs[1] != errPending {
			t.Errorf("%d nodes agreed, %d have not answered, want 1 and 2: the round had ended", vc.yes, vc.pending)
		}
		if !vc.awaits(func(i int) bool { return i == 1 }) || vc.awaits(func(i int) bool { return i == 0 }) {
			t.Error("awaits() is not of those that have not answered")
		}

		vc = newCount(1, 1) // whose caller goes: the request ends a moment later, and then all are known
		vc.enough = (*voteCount).complete
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		vc.wait(ctx, func(error) { time.AfterFunc(time.Second, func() { vc.hear(0, errOvertaken) }) })
		if vc.pending != 0 {
			t.Error("wait() has returned before the requests that it ended")
		}
	})
}

// TestJoinAnswers: what is known of a node after each answer to a join; and that nobody joins at the end of a TTL.
func TestJoinAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			what  string
			reply any
			err   error
			since time.Duration
			ttl   int64 // 0: not asked
			want  standing
		}{
			{"yes", int64(1), nil, 0, 10_000, present},
			{"yes", int64(1), nil, 4*time.Second + 500*time.Microsecond, 5999, present},
			{"another's", []byte("x"), nil, 0, 10_000, absent},
			{"refused", nil, failed(strategy.ErrRefused), 0, 10_000, absent},
			{"lost", nil, failed(strategy.ErrUnknown), 0, 10_000, unknown},
			{"nonsense", int64(2), nil, 0, 10_000, unknown},
			{"too late", int64(1), nil, 10*time.Second - 1, 0, absent},
			{"in the last moment", int64(1), nil, 10*time.Second - time.Millisecond, 1, present},
		} {
			asked := int64(0)
			p := saying(1, func(_ int, _ string, args []any) (any, error) {
				asked = args[1].(int64)
				return c.reply, c.err
			})
			votes, r := newVotes(1, absent), newRound(t.Context())
			votes.begin(&r, 0)
			p.join(r.all, aClaim(), votes, 0, time.Now().Add(-c.since))
			if ttl := time.Duration(c.ttl) * time.Millisecond; c.want == present && time.Until(votes.votes[0].until) != ttl+driver.Drift(ttl) {
				t.Errorf("a node that has joined %v after the extension keeps the token for %v, want %v and the drift", c.since, time.Until(votes.votes[0].until), ttl)
			}
			if asked != c.ttl || votes.at(0) != c.want {
				t.Errorf("a join whose answer is %s, %v after the extension: asked for %d ms, standing %d; want %d and %d", c.what, c.since, asked, votes.at(0), c.ttl, c.want)
			}
			r.end(nil)
		}
	})
}

// TestTwinEndsRound: once a node is found to be another one, too, no answer is waited for.
func TestTwinEndsRound(t *testing.T) {
	vc := newCount(3, 2)
	vc.note(0, errTwin)
	if !vc.acquireDecided() || !vc.holdDecided() {
		t.Errorf("the round goes on: acquireDecided() = %t, holdDecided() = %t, want true", vc.acquireDecided(), vc.holdDecided())
	}
}

// TestHeldUntil: when a quorum will be free, and for how long a quorum keeps a token, to the millisecond.
func TestHeldUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const s, never, now = time.Second, time.Duration(-1), time.Millisecond // as no wait is shorter
		for _, c := range []struct {
			ttls  []time.Duration // of each node, in seconds; 0: free; -1: without expiry; 100 and more: of another token
			free  time.Duration   // until a quorum is
			keeps time.Duration   // the token; 0: it has no quorum
		}{
			{[]time.Duration{10, 20, 30, 40, 50}, 30 * s, 30 * s},
			{[]time.Duration{50, 40, 30, 20, 10}, 30 * s, 30 * s},
			{[]time.Duration{20, 50, 10}, 20 * s, 20 * s},
			{[]time.Duration{0, 0, 30, 40, 50}, 30 * s, 30 * s},
			{[]time.Duration{0, 0, 0, 40, 50}, now, 0},
			{[]time.Duration{10, 20, never, never, never}, never, never},
			{[]time.Duration{10, 20, 30, never, never}, 30 * s, 30 * s},
			{[]time.Duration{0, 20, never, never}, never, 20 * s},
			{[]time.Duration{10, 20, 30, 40}, 30 * s, 20 * s},
			{[]time.Duration{10, 100, 20, 200, 30}, 30 * s, 10 * s},
		} {
			vc := newCount(len(c.ttls), len(c.ttls)/2+1)
			for i, ttl := range c.ttls {
				held := &strategy.HeldError{Holder: "a", TTL: ttl}
				switch {
				case ttl == 0:
					vc.note(i, nil)
					continue
				case ttl > 0:
					held.TTL = ttl * s
				}
				if ttl >= 100 {
					held.Holder = "b"
				}
				vc.note(i, held)
			}
			if got := vc.heldError("n"); got.TTL != c.free || got.Name != "n" {
				t.Errorf("held for %d s: heldError() = %+v, want %v", c.ttls, got, c.free)
			}
			if c.keeps != 0 && vc.keeps("a") != c.keeps {
				t.Errorf("held for %d s: keeps() = %v, want %v", c.ttls, vc.keeps("a"), c.keeps)
			}
		}
	})
}

// TestHeldNoLonger: a hold whose TTL is over is not one without expiry.
func TestHeldNoLonger(t *testing.T) {
	vc := newCount(1, 1)
	vc.note(0, &strategy.HeldError{Holder: "a"})
	if got := vc.heldError("n").TTL; got != time.Millisecond {
		t.Errorf("heldError() of a TTL of 0 has the TTL %v, want the least, 1ms", got)
	}
}

// TestLeader: the token that most nodes show, and that is the holder's only with a quorum.
func TestLeader(t *testing.T) {
	held := func(by string) error { return &strategy.HeldError{Holder: by} }
	lost := func(by string) error { return &strategy.LostError{Holder: by} }
	for _, c := range []struct {
		errs   []error
		leader string
		most   int
		holder string
	}{
		{[]error{held("a"), held("b"), held("b")}, "b", 2, "b"},
		{[]error{lost("a"), lost("a"), held("b")}, "a", 2, "a"},
		{[]error{lost(""), lost(""), lost("b")}, "b", 1, ""},
		{[]error{held(""), held(""), held("b")}, "", 2, ""},
		{[]error{nil, errPending, failed(strategy.ErrUnsent)}, "", 0, ""},
	} {
		vc := newCount(3, 2)
		for i, err := range c.errs {
			vc.note(i, err)
		}
		if leader, most := vc.leader(); leader != c.leader || most != c.most || vc.holder() != c.holder {
			t.Errorf("of %v the leader is %q with %d, the holder %q; want %q, %d, %q", c.errs, leader, most, vc.holder(), c.leader, c.most, c.holder)
		}
	}
}

// TestAnswers: each node's answer is under a name that no other node has. One without the token says of which lock.
func TestAnswers(t *testing.T) {
	p := saying(3, nil)
	p.nodes[1].(*says).i = 0
	count := newCount(3, 2)
	count.note(2, errAbsent)
	answers := p.answers(aClaim(), count)
	if got, want := fmt.Sprint(answers[0].Node, ", ", answers[1].Node, ", ", answers[2].Node), "node 1 (n1), node 2 (n1), n3"; got != want {
		t.Errorf("the nodes are %s, want %s", got, want)
	}
	var lost *strategy.LostError
	if err := answers[2].Err; !errors.As(err, &lost) || lost.Name != "n" || !errors.Is(err, errNotThere) {
		t.Errorf("a node without the token says %v, want that the lock n is not there", err)
	}
}

// TestOfCluster: a refusal that only a node of a cluster gives says what is wrong with it.
func TestOfCluster(t *testing.T) {
	for words, want := range map[string]bool{
		"MOVED 1 10.0.0.1:6379":                                  true,
		"CROSSSLOT Keys in request don't hash to the same slot":  true,
		"NOPERM this user has no permissions to run the command": false,
	} {
		err := ofCluster(&strategy.ServerError{Node: "n", Kind: strategy.ErrRefused, Err: errors.New(words)})
		if errors.Is(err, errCluster) != want || !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), words) {
			t.Errorf("ofCluster(%s) = %v, want a refusal with these words that is of a cluster: %t", words, err, want)
		}
	}
}

// TestBootstrapReply: an answer that bootstrap.lua does not give is no success.
func TestBootstrapReply(t *testing.T) {
	for reply, want := range map[any]bool{int64(0): true, int64(1): true, "x": false, nil: false} {
		p := saying(1, func(int, string, []any) (any, error) { return reply, nil })
		if err := Bootstrap(t.Context(), p.nodes); (err == nil) != want || !want && !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Bootstrap() of a node that answers %v = %v, want nil: %t, and otherwise that the answer is not known", reply, err, want)
		}
	}
}

// TestAdvice: an operator hears what ends the wait if more nodes wait for their vote than a quorum can do
// without: the time, or Bootstrap.
func TestAdvice(t *testing.T) {
	const helps = "; they vote in 9s; " + bootstrapHelps
	for _, c := range []struct {
		nodes string // e: empty; r: restarted; n: empty, and votes by now; d: down; y: votes; h: held
		want  string // the end of the error
	}{
		{"dddd", ""}, {"eeddd", ""}, {"eeddn", ""}, {"eeedd", helps}, {"eeedn", helps}, {"eeeee", helps},
		{"reeee", "; they vote in 9s"}, // Bootstrap is not for a server that was restarted
		{"yeeed", "; they vote in 8s"}, // nor for those that were emptied while another was not
		{"heeed", "; they vote in 8s"},
		{"eedd", helps}, // two of four servers are no quorum
	} {
		p := saying(len(c.nodes), nil)
		e := &strategy.QuorumError{Need: p.quorum}
		for i, is := range c.nodes {
			guard := &GuardError{Reason: ReasonEmpty, For: time.Duration(9-i) * time.Second, Begun: true}
			err := error(&strategy.ServerError{Kind: strategy.ErrRefused, Err: guard})
			switch is {
			case 'r':
				guard.Reason = ReasonRestarted
			case 'n':
				guard.For = 0
			case 'd':
				err = failed(strategy.ErrUnsent)
			case 'y':
				err = nil
			case 'h':
				err = &strategy.HeldError{}
			}
			e.Nodes = append(e.Nodes, strategy.NodeAnswer{Node: "n", Err: err})
		}
		if got := p.advised(e).Error(); got != e.Error()+c.want {
			t.Errorf("of nodes %s: %s, want that it ends with %q", c.nodes, got, c.want)
		}
		e.Held = &strategy.HeldError{}
		if p.advised(e) != error(e) {
			t.Errorf("of nodes %s: the error of a lock that is held says what to do about nodes that wait", c.nodes)
		}
	}
	other := errors.New("another")
	if saying(1, nil).advised(other) != other {
		t.Error("advised() changes another error")
	}
	for e, want := range map[GuardError]string{
		{Reason: ReasonEmpty, For: time.Second, Begun: true}:     "it does not vote for 1s: it is new or was emptied",
		{Reason: ReasonEmpty, For: time.Second}:                  "it does not vote until 1s after its first request for a lock (Check makes none): it is new or was emptied",
		{Reason: ReasonRestarted, For: time.Second, Begun: true}: "it does not vote for 1s: it was restarted or promoted",
		{Reason: ReasonRestarted, Begun: true}:                   "it votes, but has forgotten since it granted this lock: it was restarted",
	} {
		if got := e.Error(); !strings.HasPrefix(got, want) {
			t.Errorf("%+v says %q, want %q", e, got, want)
		}
	}
}

// TestGiveBack: a failed attempt publishes its end if somebody may have seen it hold the lock, and gives back
// all that it may have, and nothing else. It does so although its ctx is over.
func TestGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			granted int
			channel string // of the release
		}{{1, ""}, {2, ""}, {3, "lock:{n}:free"}, {5, "lock:{n}:free"}} {
			var mu sync.Mutex
			var to []any
			p := saying(5, func(i int, script string, args []any) (any, error) {
				mu.Lock()
				defer mu.Unlock()
				if to = append(to, args[1]); script != "release" || args[0] != "mine" {
					t.Errorf("node %d is asked for %s of %v, want the release", i+1, script, args[0])
				}
				return int64(1), nil
			})
			votes := newVotes(5, absent)
			for i := range c.granted {
				votes.granted(i, time.Minute)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			g, err := p.giveBack(ctx, aClaim(), votes, failed(strategy.ErrLost))
			if err == nil || g.Partial || g.State != any(votes) || len(votes.holding()) != 0 {
				t.Errorf("giveBack() of %d votes = %+v, %v, and %d are left, want none", c.granted, g, err, len(votes.holding()))
			}
			if len(to) != c.granted {
				t.Errorf("%d votes are released on %d nodes, want as many", c.granted, len(to))
			}
			for _, ch := range to {
				if ch != c.channel {
					t.Errorf("the release of %d votes is published at %q, want %q", c.granted, ch, c.channel)
				}
			}
		}
	})
}

// TestFenceNumber: the fence is greater than what any voter has noted, and no less than their times; and only
// those that remember count, if they are a quorum. The numbers that are reserved with it stay near the nodes'
// times, and the last of them is noted.
func TestFenceNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remembers := func(last, now int64) fenceReply { return fenceReply{last: last, remembers: true, now: now} }
		forgot := func(last, now int64) fenceReply { return fenceReply{last: last, now: now} }
		for _, c := range []struct {
			said     []fenceReply
			wanted   int // how many fences
			fence    uint64
			reserved int
			token    string // with which each is asked; blank: it is not
		}{
			{[]fenceReply{remembers(7, 0), remembers(9, 0), remembers(8, 0)}, 0, 10, 1, "mmm"},
			{[]fenceReply{remembers(7, 50), remembers(9, 60), remembers(8, 0)}, 1, 60, 1, "mmm"},
			{[]fenceReply{remembers(7, 0), remembers(9, 0), forgot(20, 0)}, 0, 21, 1, "mm-"},
			{[]fenceReply{remembers(700, 0), forgot(900, 0), forgot(2000, 0)}, 0, 2001, 1, "mmm"},
			{[]fenceReply{remembers(7, 60), remembers(9, 50), remembers(8, 0)}, 256, 60, 256, "mmm"},
			{[]fenceReply{remembers(99, 1), remembers(315, 60), forgot(8, 0)}, 256, 316, 256, "mm-"},
			{[]fenceReply{remembers(99, 1), remembers(316, 60), forgot(8, 0)}, 256, 317, 1, "mm-"}, // or they would be ahead by 513
			{[]fenceReply{remembers(7, 50), forgot(9, 60), forgot(8, 0)}, 256, 572, 1, "mmm"},      // what is lost may have been ahead by 512
			{[]fenceReply{remembers(7, 0), remembers(9, 0), {}}, 0, 10, 1, "mm "},                  // the third has not voted
		} {
			var mu sync.Mutex
			asked := []byte("   ")
			p := saying(3, func(i int, script string, args []any) (any, error) {
				mu.Lock()
				defer mu.Unlock()
				if asked[i] = '-'; args[0] == "mine" {
					asked[i] = 'm'
				}
				if last := int64(c.fence) + int64(c.reserved) - 1; args[1] != last {
					t.Errorf("of %v: node %d has to note %v, want %d", c.said, i+1, args[1], last)
				}
				return int64(1), nil
			}, WithFences())
			votes, count := newVotes(3, present), newCount(3, 2)
			for i := range 3 {
				if votes.granted(i, time.Minute); c.token[i] == ' ' {
					votes.set(i, absent)
					count.note(i, errAbsent)
					continue
				}
				count.note(i, nil)
			}
			mine := aClaim()
			mine.Fences = c.wanted
			fence, reserved, err := p.issueFence(t.Context(), mine, votes, count, c.said)
			p.Close()
			if fence != c.fence || reserved != c.reserved || err != nil || string(asked) != c.token {
				t.Errorf("of %v: issueFence() = %d, %d reserved, %v, and the nodes are asked as %q, want %d, %d, and %q",
					c.said, fence, reserved, err, asked, c.fence, c.reserved, c.token)
			}
		}
	})
}

// TestFenceFails: a fence that no quorum has noted is none, and voters that had forgotten theirs do not hear of it. The error
// has what each node said, in whichever round that was.
func TestFenceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused, silent := failed(strategy.ErrRefused), failed(strategy.ErrUnknown)
		p := saying(5, func(i int, _ string, args []any) (any, error) {
			if args[0] == "" {
				t.Errorf("node %d hears of a fence that no quorum has noted", i+1)
			}
			return int64(1), []error{nil, refused, nil, nil, nil}[i]
		}, WithFences())
		votes, count := newVotes(5, present), newCount(5, 3)
		for i, err := range []error{nil, nil, nil, nil, silent} {
			count.note(i, err)
			votes.granted(i, time.Minute)
		}
		said := []fenceReply{{remembers: true}, {remembers: true}, {remembers: true}, {}, {}}
		_, _, err := p.issueFence(t.Context(), aClaim(), votes, count, said)
		p.Close()
		var none *strategy.QuorumError
		if !errors.As(err, &none) || none.Nodes[1].Err != refused || none.Nodes[4].Err != silent {
			t.Errorf("issueFence() = %v, want a *QuorumError of a node that refused, and of one that did not vote", err)
		}
	})
}

// TestAllocations: a pair on five servers makes 60 allocations at most, besides its requests, however many of
// the nodes are stragglers. The keys and arguments are made once for all servers. Nothing is made for a
// silent server while there is none.
func TestAllocations(t *testing.T) {
	p := saying(5, func(int, string, []any) (any, error) { return int64(1), nil })
	s, err := engine.New(p, strategy.Options{})
	locktest.Allocations(t, locktest.Opened(t, s, err), 60)
}

// The answers that a node may give, in the rounds of Acquire and of Extend.
var (
	heldBy = func(token string) error { return &strategy.HeldError{Holder: token, TTL: time.Second} }
	down   = &strategy.ServerError{Node: "n", Kind: strategy.ErrUnsent}

	votes = []error{nil, heldBy("a"), heldBy("b"), down}
	keeps = []error{nil, &strategy.LostError{}, down}
)

// TestEnough plays every round of one to six nodes, in every order that matters: a round
// goes on as long as the answers to come can change what comes of it, and no longer.
func TestEnough(t *testing.T) {
	outcome := func(tl *voteCount) string { // by the rules, from all answers
		held := map[string]int{}
		for _, err := range tl.errs {
			if h, ok := err.(*strategy.HeldError); ok {
				held[h.Holder]++
			}
		}
		switch {
		case tl.yes >= tl.quorum:
			return "granted"
		case tl.lost > len(tl.errs)-tl.quorum:
			return "lost"
		case tl.yes+tl.held < tl.quorum:
			return "unreachable"
		}
		for token, n := range held {
			if n >= tl.quorum {
				return "held by " + token
			}
		}
		return "held"
	}
	for n := 1; n <= 6; n++ {
		for _, round := range []struct {
			name   string
			words  []error
			enough func(*voteCount) bool
		}{{"acquireDecided", votes, (*voteCount).acquireDecided}, {"holdDecided", keeps, (*voteCount).holdDecided}} {
			// outcomes gives what may still come of a round in which the first nodes have said
			// so much; which of the nodes it was does not matter.
			var outcomes func(said []error) map[string]bool
			outcomes = func(said []error) map[string]bool {
				tl := newCount(n, n/2+1)
				for i, err := range said {
					tl.note(i, err)
				}
				all := map[string]bool{}
				if len(said) == n {
					all[outcome(tl)] = true
					return all
				}
				for _, word := range round.words {
					for o := range outcomes(append(said[:len(said):len(said)], word)) {
						all[o] = true
					}
				}
				if got, want := round.enough(tl), len(all) == 1; got != want {
					t.Errorf("%s() of %d nodes, after %s = %v, want %v: it may end as %v", round.name, n, fmt.Sprint(said), got, want, all)
				}
				return all
			}
			outcomes(nil)
		}
	}
}

// TestNothingLeft: an extension that finds no token anywhere leaves nothing to undo.
func TestNothingLeft(t *testing.T) {
	p := saying(1, func(int, string, []any) (any, error) { return nil, nil })
	if g, err := p.Extend(t.Context(), aClaim()); !errors.Is(err, strategy.ErrLost) || g.Partial {
		t.Errorf("Extend() = %+v, %v, want a loss, and nothing left", g, err)
	}
}
