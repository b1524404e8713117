package nodetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// Generous is for what must happen, not for what must happen soon.
const Generous = time.Minute

// Soon is when a call is due that must not fail for want of time.
func Soon() time.Time { return time.Now().Add(Generous) }

// Want ends the test unless err is a *ServerError that is all of targets, and of one kind only. It says nothing twice, but
// for the word with which each error of go-redis begins.
func Want(t testing.TB, what string, err error, targets ...error) {
	t.Helper()
	var said *strategy.ServerError
	if !errors.As(err, &said) {
		t.Fatalf("%s = %v (%T), want a *strategy.ServerError", what, err, err)
	}
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("%s = %v, want %v", what, err, target)
		}
	}
	for _, kind := range []error{strategy.ErrRefused, strategy.ErrUnsent, strategy.ErrUnknown} {
		if errors.Is(err, kind) != (kind == said.Kind) {
			t.Fatalf("%s = %v, want nothing but %v", what, err, said.Kind)
		}
	}
	told := map[string]bool{}
	for _, words := range strings.Split(err.Error(), ": ") {
		if told[words] && words != "redis" {
			t.Errorf("%s = %v, which says %q twice", what, err, words)
		}
		told[words] = true
	}
}

// Receive returns what comes from c, and ends the test if nothing does.
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Generous):
		t.Fatalf("not within %v: %s", Generous, what)
		panic("unreachable")
	}
}
