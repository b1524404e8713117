// Tests what every node and protocol has.
package driver_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/enginetest"
	"github.com/lockstrategies/locks/strategy"
)

var (
	bg = context.Background()
)

// TestSiblingKey: a sibling lies in its key's slot: that of the first hash tag that is not empty.
func TestSiblingKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"lock:{n}": "lock:{n}:s", "n": "{n}:s:", "a{}b": "{a{}b}:s:", "a{b": "{a{b}:s:", "a}b": "{a}b}:s:", "{n}": "{n}:s", "{ab}{c}": "{ab}{c}:s",
	} {
		enginetest.Equal(t, "SiblingKey of "+key, driver.SiblingKey(key, "s"), want)
	}
}

func TestScript(t *testing.T) {
	t.Parallel()
	s := driver.NewScript("one", "return 1")
	enginetest.Equal(t, "Name", s.Name(), "one")
	enginetest.Equal(t, "Source", s.Source(), "return 1")
	enginetest.Equal(t, "Hash", s.Hash(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db") // SCRIPT LOAD "return 1"
	enginetest.Equal(t, "HashArg", s.HashArg(), any(s.Hash()))
	if shared, ok := s.Joint(); ok || shared != 0 {
		t.Errorf("Joint = %d, %v, want none", shared, ok)
	}
	if shared, ok := driver.NewJointScript("many", 2, "return 1").Joint(); !ok || shared != 2 {
		t.Errorf("Joint = %d, %v, want 2, true", shared, ok)
	}
}

// TestBadNode: nothing is sent, and each call says why.
func TestBadNode(t *testing.T) {
	t.Parallel()
	why := errors.New("the client is a stone")
	n := driver.BadNode(why)
	_, do := n.Do(bg, time.Time{}, "GET", "k")
	_, eval := n.Eval(bg, time.Time{}, driver.NewScript("s", "return 1"), nil)
	_, subscribe := n.Subscribe(bg, "c", nil)
	for call, err := range map[string]error{"Do": do, "Eval": eval, "Subscribe": subscribe, "Session": n.Session(bg, time.Time{}, "k", nil)} {
		if !errors.Is(err, strategy.ErrUnsent) || !errors.Is(err, why) {
			t.Errorf("%s() = %v, want ErrUnsent and %v", call, err, why)
		}
	}
	if err := n.Use(); !errors.Is(err, why) {
		t.Errorf("Use() = %v, want %v", err, why)
	}
	if n.Name() != driver.Unnamed || !n.Ordered() || n.Probe(bg, time.Time{}) != 0 || n.Close() != nil {
		t.Errorf("%s: Ordered %v, Probe %d, Close %v, want no name, true, 0 and nil", n.Name(), n.Ordered(), n.Probe(bg, time.Time{}), n.Close())
	}
}

// TestGiven: an algorithm gets the node, or one that says what is wrong: with the node, with an option, or with both.
func TestGiven(t *testing.T) {
	t.Parallel()
	type protocol struct{ set []int }
	option := func(i int) func(*protocol) { return func(p *protocol) { p.set = append(p.set, i) } }
	var p protocol
	enginetest.Is(t, "Apply", driver.Apply(&p, []func(*protocol){option(1), option(2)}))
	fault := driver.Apply(&p, []func(*protocol){nil, option(3), nil})
	if !slices.Equal(p.set, []int{1, 2, 3}) {
		t.Errorf("applied are %v, want all", p.set)
	}
	whole := driver.BadNode(errors.New("stands for one that can be used"))
	if n := driver.NodeOf(whole, nil); n != whole {
		t.Errorf("NodeOf(n, nil) = %v, want n", n)
	}
	for _, c := range []struct {
		n     driver.Node
		fault error
		says  []string
	}{
		{whole, fault, []string{"option 1 is nil", "option 3 is nil"}},
		{nil, nil, []string{"the node is nil"}},
		{nil, fault, []string{"the node is nil", "option 1 is nil"}},
	} {
		for _, want := range c.says {
			if err := driver.NodeOf(c.n, c.fault).Use(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("NodeOf(%v, %v).Use() = %v, want that it says %q", c.n, c.fault, err, want)
			}
		}
	}
}
