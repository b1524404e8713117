// Tests what each error says, and which kinds it is.
package strategy_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// Each error type is its sentinel, and no other, also when it is wrapped.
func TestErrors(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	acks := func(want, got strategy.Acks, err error) error {
		return &strategy.ServerError{Node: "n", Kind: strategy.ErrUnknown, Err: &strategy.AcksError{Want: want, Got: got, Err: err}}
	}
	two, file := strategy.Acks{Replicas: 2}, strategy.Acks{Replicas: 2, AOF: true}
	all := []error{strategy.ErrHeld, strategy.ErrLost, strategy.ErrReleased, strategy.ErrRefused, strategy.ErrUnsent, strategy.ErrUnknown, strategy.ErrUnsupported, strategy.ErrClosed}
	for _, tt := range []struct {
		err  error
		is   []error
		text string
	}{
		{&strategy.HeldError{Name: "a"}, all[:1], `lock "a": held`},
		{&strategy.HeldError{Name: "a", Holder: "token", TTL: time.Second}, all[:1], `lock "a": held by "…en" for 1s unless renewed`},
		{&strategy.HeldError{Name: "a", TTL: 578_993_647}, all[:1], `lock "a": held for 579ms unless renewed`},
		{&strategy.HeldError{Name: "a", TTL: 1}, all[:1], `lock "a": held for 1ms unless renewed`},
		{&strategy.HeldError{Name: "a", Holder: "token", TTL: -1}, all[:1], `lock "a": held by "…en" without expiry`},
		{&strategy.HeldError{Name: "a", Holder: "token", TTL: time.Second, Taken: 2, Permits: 3}, all[:1], `lock "a": held by "…en" for 1s unless renewed; 2 of 3 permits are taken`},
		{&strategy.LostError{Name: "a"}, all[1:2], `lock "a": lost: the key is gone`},
		{&strategy.LostError{Name: "a", Err: errors.New("not granted")}, all[1:2], `lock "a": lost: not granted`},
		{&strategy.LostError{Name: "a", Lapsed: true, Err: &strategy.QuorumError{Name: "a", Need: 1}}, all[1:2], `lock "a": lost: its deadline came: no quorum: 0 of 0 servers agreed, needed are 1`},
		{&strategy.LostError{Name: "a", Holder: "token"}, all[1:2], `lock "a": lost: now held by "…en"`},
		{&strategy.LostError{Name: "a", Lapsed: true, Err: cause}, []error{strategy.ErrLost, cause}, `lock "a": lost: its deadline came: cause`},
		{&strategy.ServerError{Node: "n", Kind: strategy.ErrRefused}, all[3:4], "n: refused by the server"},
		{&strategy.ServerError{Node: "n", Kind: strategy.ErrUnknown, Err: cause}, []error{strategy.ErrUnknown, cause}, "n: outcome unknown: cause"},
		// A request in the context of another lock, which was lost: the cause of that context says nothing of this lock.
		{&strategy.ServerError{Node: "n", Kind: strategy.ErrUnknown, Err: &strategy.LostError{Name: "b", Err: cause}}, []error{strategy.ErrUnknown, cause}, `n: outcome unknown: lock "b": lost: cause`},
		{&strategy.ServerError{Node: "n", Kind: strategy.ErrUnknown, Err: strategy.ErrHeld}, all[5:6], "n: outcome unknown: held by another"},
		{&strategy.ServerError{Node: "n", Kind: strategy.ErrUnknown, Err: strategy.ErrUnsent}, all[5:6], "n: outcome unknown: not sent"},
		{acks(two, strategy.Acks{Replicas: 1}, nil), all[5:6], "n: outcome unknown: done, but too few confirmed it in time: 1 of 2 replicas"},
		{acks(two, strategy.Acks{AOF: true}, nil), all[5:6], "n: outcome unknown: done, but too few confirmed it in time: 0 of 2 replicas"},
		{acks(file, two, nil), all[5:6], "n: outcome unknown: done, but too few confirmed it in time: 2 of 2 replicas, not the append-only file"},
		{acks(file, strategy.Acks{AOF: true}, nil), all[5:6], "n: outcome unknown: done, but too few confirmed it in time: the append-only file, 0 of 2 replicas"},
		{acks(two, strategy.Acks{}, cause), []error{strategy.ErrUnknown, cause}, "n: outcome unknown: done, but nobody knows which servers have confirmed it: cause"},
		{acks(two, strategy.Acks{}, &strategy.ServerError{Node: "n", Kind: strategy.ErrRefused, Err: cause}), []error{strategy.ErrUnknown, cause},
			"n: outcome unknown: done, but nobody knows which servers have confirmed it: n: refused by the server: cause"},
	} {
		if tt.err.Error() != tt.text {
			t.Errorf("Error() = %q, want %q", tt.err, tt.text)
		}
		if several, ok := tt.err.(interface{ Unwrap() []error }); ok && slices.Contains(several.Unwrap(), nil) {
			t.Errorf("Unwrap() of %q = %v, want no nil", tt.text, several.Unwrap())
		}
		wrapped := fmt.Errorf("wrapped: %w", tt.err)
		for _, want := range tt.is {
			if !errors.Is(wrapped, want) {
				t.Errorf("errors.Is(%q, %q) = false, want true", tt.text, want)
			}
		}
		for _, e := range all {
			want := e == tt.is[0]
			if errors.Is(wrapped, e) != want {
				t.Errorf("errors.Is(%q, %q) = %v, want %v", tt.text, e, !want, want)
			}
		}
	}
}

// A ServerError is of no other kind by what broke the request, and may be any other error by it.
func TestReasonOfAServerError(t *testing.T) {
	t.Parallel()
	of := func(reason error) error {
		return &strategy.ServerError{Node: "n", Kind: strategy.ErrUnknown, Err: reason}
	}
	var held *strategy.HeldError
	var lost *strategy.LostError
	var quorum *strategy.QuorumError
	var acks *strategy.AcksError
	var server *strategy.ServerError
	if err := of(&strategy.HeldError{}); errors.As(err, &held) {
		t.Errorf("%v is %#v", err, held)
	}
	if err := of(&strategy.LostError{}); errors.As(err, &lost) {
		t.Errorf("%v is %#v", err, lost)
	}
	if err := of(&strategy.QuorumError{}); errors.As(err, &quorum) {
		t.Errorf("%v is %#v", err, quorum)
	}
	if err := of(strategy.ErrClosed); !errors.Is(err, strategy.ErrClosed) {
		t.Errorf("%v is not ErrClosed", err)
	}
	if err := of(&strategy.AcksError{}); !errors.As(err, &acks) {
		t.Errorf("%v is no AcksError", err)
	}
	if err := errors.Join(&strategy.AcksError{Err: of(nil)}, of(&strategy.ServerError{Node: "m"})); !errors.As(err, &server) || server.Node != "n" {
		t.Errorf("%v is not the ServerError of n, but %#v", err, server)
	}
	if parts := of(nil).(*strategy.ServerError).Unwrap(); len(parts) != 1 {
		t.Errorf("without a reason Unwrap = %v, want the kind alone", parts)
	}
	if lost := (&strategy.LostError{}); !errors.Is(of(lost), lost) {
		t.Error("a ServerError does not know what broke it")
	}
}
