// Why ctx ended a request is added to the request's error once, and only to an error that ctx can explain.
package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockstrategies/locks/strategy"
)

func TestEndedBy(t *testing.T) {
	cause := errors.New("cause")
	live := context.Background()
	done, cancel := context.WithCancelCause(live)
	cancel(cause)
	plain, stop := context.WithCancel(live)
	stop()
	server := func(kind, err error) error { return &strategy.ServerError{Node: "n", Kind: kind, Err: err} }
	for _, tt := range []struct {
		what string
		ctx  context.Context
		err  error
		want string
	}{
		{"not done", live, server(strategy.ErrUnsent, nil), "n: not sent"},
		{"unsent", done, server(strategy.ErrUnsent, nil), "n: not sent: context canceled: cause"},
		{"unknown", done, server(strategy.ErrUnknown, nil), "n: outcome unknown: context canceled: cause"},
		{"refused", done, server(strategy.ErrRefused, nil), "n: refused by the server"},
		{"no error", done, nil, "<nil>"},
		{"says the error alone", done, server(strategy.ErrUnsent, context.Canceled), "n: not sent: context canceled: context canceled: cause"},
		{"says the cause alone", done, server(strategy.ErrUnsent, cause), "n: not sent: cause: context canceled: cause"},
		{"says both", done, server(strategy.ErrUnsent, errors.Join(context.Canceled, cause)), `n: not sent: context canceled\ncause`},
		{"no cause of its own", plain, server(strategy.ErrUnsent, nil), "n: not sent: context canceled"},
	} {
		if got := fmt.Sprint(endedBy(tt.ctx, tt.err)); got != tt.want {
			t.Errorf("%s: endedBy = %q, want %q", tt.what, got, tt.want)
		}
	}
}
