// A call that hangs is left, and what it brings later has a place to go.
package client

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errWhy = errors.New("why")

func none(t *testing.T) func(int) {
	return func(v int) { t.Errorf("%d came late", v) }
}

func TestCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h Hanging
		var last context.Context
		one := func(ctx context.Context) (int, error) { last = ctx; return 1, nil }
		if v, err := Call(t.Context(), &h, one, none(t)); v != 1 || err != nil {
			t.Errorf("Call = %d, %v, want 1, nil", v, err)
		}
		if synctest.Wait(); last.Err() == nil {
			t.Error("the context of a call that has returned goes on")
		}
		if _, err := Call(t.Context(), &h, func(context.Context) (int, error) { return 0, errWhy }, none(t)); err != errWhy {
			t.Errorf("Call = %v, want %v", err, errWhy)
		}
	})
}

func TestCallIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h Hanging
		let := make(chan error)
		var came atomic.Int32
		hang := func() error {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(errWhy) })
			_, err := Call(ctx, &h, func(context.Context) (int, error) { return 1, <-let }, func(int) { came.Add(1) })
			return err
		}
		for range MostLeft {
			began := time.Now()
			if err := hang(); err != errWhy || time.Since(began) != time.Second {
				t.Fatalf("a call that hangs = %v after %v, want %v after a second", err, time.Since(began), errWhy)
			}
		}
		if err := hang(); err == nil || err == errWhy {
			t.Errorf("a call next to %d that hang = %v, want that there are too many", MostLeft, err)
		}
		began := time.Now()
		if h.Wait(time.Minute); time.Since(began) != time.Minute {
			t.Errorf("Wait took %v, want a minute", time.Since(began))
		}
		let <- errWhy // what fails late brings nothing
		if synctest.Wait(); came.Load() > 0 {
			t.Error("a call that has failed brought something")
		}
		if err := hang(); err != errWhy {
			t.Errorf("a call when one has returned = %v, want %v", err, errWhy)
		}
		close(let)
		h.Go(func() { came.Add(1) })
		began = time.Now()
		if h.Wait(time.Minute); time.Since(began) > 0 || came.Load() != MostLeft+1 {
			t.Errorf("%d came late after %v, want %d at once", came.Load(), time.Since(began), MostLeft+1)
		}
	})
}

// Calls may begin while somebody waits, and several may wait.
func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h Hanging
		let := make(chan bool)
		for range 3 {
			h.Go(func() { <-let })
			began := time.Now()
			go h.Wait(time.Hour)
			if h.Wait(time.Minute); time.Since(began) != time.Minute {
				t.Errorf("Wait took %v, want a minute", time.Since(began))
			}
		}
		close(let)
		began := time.Now()
		h.Wait(time.Hour)
		if h.Wait(time.Hour); time.Since(began) > 0 {
			t.Errorf("Wait took %v when nothing ran", time.Since(began))
		}
	})
}
