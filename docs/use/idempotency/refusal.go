package idempotency

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"google.golang.org/grpc/codes"

	"github.com/lockstrategies/locks/strategy"
)

// A refusal is what a caller gets instead of an answer.
type refusal struct {
	err    error
	status int
	code   codes.Code
	text   string
}

// refusals are in the order in which they apply: a lock that was lost may be held by another.
var refusals = []refusal{
	{ErrInterrupted, http.StatusServiceUnavailable, codes.Unavailable, "nobody knows whether the request was done: send it again with the same key"},
	{ErrKey, http.StatusBadRequest, codes.InvalidArgument, "Idempotency-Key: allowed is one key of 1 to 255 printable ASCII characters without space, quote and backslash"},
	{ErrReused, http.StatusUnprocessableEntity, codes.FailedPrecondition, "the key came with another request before: send this request with a new key"},
	{strategy.ErrHeld, http.StatusConflict, codes.Aborted, "a request with this key is under way: send it again later with the same key"},
}

var notBegun = refusal{nil, http.StatusServiceUnavailable, codes.Unavailable, "the request has not begun: send it again with the same key"}

// refusalFor returns the refusal for an error of do or idOf, and logs those that are no fault of the caller.
func refusalFor(ctx context.Context, err error) refusal {
	found := notBegun
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			found = r
			break
		}
	}
	if found.code == codes.Unavailable {
		slog.WarnContext(ctx, "idempotency: "+found.text, "err", err)
	}
	return found
}
