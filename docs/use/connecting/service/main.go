// Service is a complete HTTP service whose requests need a lock. docs/use/connecting.md and
// docs/run/operating.md quote it. Copy it, and put your work in the place of pay.
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
)

const (
	opTimeout = time.Second      // Options.OpTimeout
	waitTime  = 2 * time.Second  // how long a request waits for the lock
	workTime  = 30 * time.Second // how long its work may take

	retryAfter = "2" // how many seconds the work mostly takes

	// No request takes longer than requestTime: each step at its longest. A wait for a Redis that does not
	// answer ends one opTimeout late. The release may take two: it waits for a renewal that is under way.
	requestTime = waitTime + opTimeout + workTime + 2*opTimeout
)

// Work is what one request at a time does for an invoice. It must stop when ctx ends, give the lease's
// fence and owner to the store that it writes to, and do nothing if the invoice is done already.
type Work func(ctx context.Context, id string, lease strategy.Lease) error

func pay(ctx context.Context, id string, lease strategy.Lease) error {
	fence, ok := lease.Fence() // fencing.Of in docs/use/fencing returns it together with the owner
	if !ok {
		return errors.New("the lock issues no fences, so no store can refuse a late write")
	}
	slog.InfoContext(ctx, "paid", "id", id, "fence", fence)
	return nil
}

func main() {
	if err := run(); err != nil {
		slog.Error("service", "error", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	locks, client, err := open()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	return serve(ctx, listener, locks, client, pay)
}

// open connects to nothing yet. It is all that changes with another client.
func open() (strategy.Strategy, io.Closer, error) {
	pool := &redis.Pool{
		MaxIdle:     8,
		IdleTimeout: 4 * time.Minute,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", os.Getenv("REDIS_ADDR"), // redis.internal:6379
				redis.DialUsername(os.Getenv("REDIS_USER")), redis.DialPassword(os.Getenv("REDIS_PASSWORD")),
				redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(time.Second), redis.DialWriteTimeout(time.Second))
		},
	}
	locks, err := fairqueue.New(redigonode.New(pool), strategy.Options{
		TTL:       10 * time.Second,
		OpTimeout: opTimeout,
		MaxHold:   workTime + 10*time.Second, // longer than the longest work
		Label:     strategy.ThisProcess("").String(),
	})
	return locks, pool, err
}

// serve answers requests until ctx ends.
func serve(ctx context.Context, listener net.Listener, locks strategy.Strategy, client io.Closer, work Work) error {
	var ready atomic.Bool
	go func() { ready.Store(checked(ctx, locks) == nil) }()

	server := &http.Server{Handler: routes(locks, work, &ready), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return errors.Join(err, locks.Close(), client.Close())
	case <-ctx.Done(): // SIGTERM
		return stop(server, locks, client)
	}
}

// checked returns when Check has found nothing wrong. It tries again and again: if the process ended
// instead, it would be restarted in a loop while Redis is away.
func checked(ctx context.Context, locks strategy.Strategy) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := locks.Check(attempt)
		cancel()
		if err == nil {
			return nil
		}
		slog.WarnContext(ctx, "not ready", "error", err) // it says what to change
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause/2 + rand.N(pause/2)): // processes that began together do not ask together
		}
	}
}

func routes(locks strategy.Strategy, work Work, ready *atomic.Bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /invoices/{id}/pay", handler(locks, work)) // without {id} all invoices would share one lock
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	return mux
}

func handler(locks strategy.Strategy, work Work) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		lock := locks.NewLock("invoice/" + id)
		var began bool
		var failed error // the work's error; err is the lock's
		// If the client hangs up, r.Context() ends, and with it the wait.
		err := strategy.DoWithin(r.Context(), lock, waitTime,
			func(_ context.Context, lease strategy.Lease) error {
				began = true
				// The work goes on without the client.
				ctx, cancel := lease.Context(context.WithoutCancel(r.Context()))
				defer cancel()
				ctx, cancel = context.WithTimeout(ctx, workTime)
				defer cancel()
				failed = work(ctx, id, lease)
				return nil
			})
		done := began && failed == nil
		status := statusOf(began, done, err)
		if err != nil || failed != nil {
			slog.WarnContext(r.Context(), "invoice", "id", id, "began", began,
				"done", done, "outcome", outcome(err), "status", status,
				"error", errors.Join(failed, err))
		}
		switch status {
		case http.StatusConflict, http.StatusServiceUnavailable:
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
	}
}

// statusOf takes the error of the lock, and none of the work.
func statusOf(began, done bool, err error) int {
	switch {
	case !began && errors.Is(err, strategy.ErrHeld):
		return http.StatusConflict // another request holds the lock
	case !began:
		return http.StatusServiceUnavailable // Redis failed: try again later
	case errors.Is(err, strategy.ErrLost):
		return http.StatusInternalServerError // another may have worked, too
	case done:
		return http.StatusOK // even if the release was not confirmed
	}
	return http.StatusInternalServerError // the work failed, or took too long
}

// outcome names what happened to the lock.
func outcome(err error) string {
	for _, e := range []error{strategy.ErrLost, strategy.ErrHeld, strategy.ErrUnknown, strategy.ErrRefused, strategy.ErrUnsent} {
		if errors.Is(err, e) {
			return e.Error() // "lock lost", "held by another", "outcome unknown", …
		}
	}
	return "other" // nothing that Redis said: the work failed, for instance
}

// stop ends a service whose requests hold locks.
func stop(server *http.Server, locks strategy.Strategy, client io.Closer) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	served := server.Shutdown(ctx) // takes no new requests; waits until each has released its lock
	closed := locks.Close()        // ends renewal, and repeats the releases that were not confirmed
	return errors.Join(served, closed, client.Close())
}
