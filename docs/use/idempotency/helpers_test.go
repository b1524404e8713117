package idempotency_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/lockstrategies/locks/docs/use/fencing"
	"github.com/lockstrategies/locks/docs/use/idempotency"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // refusals are logged; TestLog reads that
	os.Exit(m.Run())
}

// inMemory is a store that docs/use/fencing tests, behind HTTP without a network.
func inMemory() idempotency.Store {
	return fencing.HTTP{URL: "http://store", Client: &http.Client{Transport: transport{fencing.NewHandler()}}}
}

type transport struct{ http.Handler }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Err() != nil {
		return nil, context.Cause(r.Context())
	}
	w := httptest.NewRecorder()
	t.ServeHTTP(w, r)
	return w.Result(), nil
}

// flaky is a store that fails, if it has an error. It writes also if its context has ended, as some stores do.
type flaky struct {
	idempotency.Store
	read, write error
}

var errStore = errors.New("the store is away")

func (f *flaky) Read(ctx context.Context, id string, h fencing.Holder) (string, error) {
	if f.read != nil {
		return "", f.read
	}
	return f.Store.Read(ctx, id, h)
}

func (f *flaky) Write(ctx context.Context, id, text string, h fencing.Holder) error {
	if f.write != nil {
		return f.write
	}
	return f.Store.Write(context.WithoutCancel(ctx), id, text, h)
}

// once is a process that waits 2 s for a request that is under way.
func once(locks strategy.Strategy, store idempotency.Store) *idempotency.Once {
	return &idempotency.Once{Locks: locks, Answers: store, Wait: 2 * time.Second}
}

// foreign is a store with what others have written.
type foreign struct{ idempotency.Store }

func (foreign) Read(context.Context, string, fencing.Holder) (string, error) { return "10 EUR", nil }

// unfenced locks issue no fences.
type unfenced struct{ strategy.Strategy }

func (u unfenced) NewLock(name string) strategy.Lock { return unfencedLock{u.Strategy.NewLock(name)} }

type unfencedLock struct{ strategy.Lock }

func (u unfencedLock) TryAcquire(ctx context.Context) (strategy.Lease, error) {
	lease, err := u.Lock.TryAcquire(ctx)
	return unfencedLease{lease}, err
}

type unfencedLease struct{ strategy.Lease }

func (unfencedLease) Fence() (uint64, bool) { return 0, false }
