package connecting

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

const (
	waitTime = 2 * time.Second  // how long a request waits for the lock
	workTime = 30 * time.Second // how long the work may take; less than Options.MaxHold
)

// Handler lets one request at a time work on an invoice. The work must stop when its context ends,
// and give its fence to the store that it writes to.
func Handler(locks strategy.Strategy, work func(ctx context.Context, id string, fence uint64) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		began, done := false, false
		err := strategy.DoWithin(r.Context(), waitTime, locks.NewLock("invoice/"+id), func(ctx context.Context, lease strategy.Lease) error {
			began = true
			ctx, cancel := context.WithTimeout(ctx, workTime) // it also ends when the lock is lost
			defer cancel()
			fence, _ := lease.Fence()
			err := work(ctx, id, fence)
			done = err == nil
			return err
		})
		status := statusOf(began, done, err)
		if err != nil {
			slog.WarnContext(r.Context(), "invoice", "id", id, "status", status, "error", err)
		}
		w.WriteHeader(status)
	}
}

func statusOf(began, done bool, err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case !began && errors.Is(err, strategy.ErrHeld):
		return http.StatusConflict // another request holds the lock
	case !began:
		return http.StatusServiceUnavailable // Redis is down, refuses, or did not answer
	case errors.Is(err, strategy.ErrLost):
		return http.StatusInternalServerError // another request may have worked on it: look first
	case done:
		return http.StatusOK // only the release was not confirmed: the lock ends with its TTL at the latest
	}
	return http.StatusInternalServerError // the work failed, or took too long
}

// Stop ends a service whose requests hold locks. Call it after SIGTERM.
func Stop(server *http.Server, locks strategy.Strategy, client io.Closer) error {
	ctx, cancel := context.WithTimeout(context.Background(), waitTime+workTime)
	defer cancel()
	served := server.Shutdown(ctx) // takes no new requests; waits until each has released its lock
	closed := locks.Close()        // ends renewal, and repeats the releases that were not confirmed
	return errors.Join(served, closed, client.Close())
}
