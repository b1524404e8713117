// Package idempotency is code to copy: a request that a client sends twice, with the same key, is done once, and both
// times the client gets the same answer. [Once.Handler] is for HTTP, [Once.Unary] for gRPC. docs/use/idempotency.md of
// the module says what a lock can do for that, and what it cannot.
//
// It is a module of its own, so that nobody who takes a lock depends on gRPC.
package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/lockstrategies/locks/docs/use/fencing"
	"github.com/lockstrategies/locks/strategy"
)

// A Once does each request once. All processes of a service need the same locks and the same store.
type Once struct {
	// Locks issue fences. Their Options.MaxHold bounds how long a handler may work.
	Locks interface {
		NewLock(name string) strategy.Lock
	}
	// Answers keeps the answers, until somebody deletes them.
	Answers Store
	// Wait is how long a request waits while another with its key is under way. 0: not at all.
	Wait time.Duration
}

// A Store keeps a text for each id. Each store of docs/use/fencing is one.
type Store interface {
	// Read returns the text of id, "" if it has none. From now on earlier holders are refused.
	Read(ctx context.Context, id string, h fencing.Holder) (string, error)
	// Write sets the text of id. After [fencing.ErrStale] a later holder has been here, and nothing has changed.
	Write(ctx context.Context, id, text string, h fencing.Holder) error
}

var (
	// ErrKey says that a request has no key, or one that is not allowed.
	ErrKey = errors.New("no idempotency key, or not allowed")
	// ErrReused says that the key came with another request before. That one's answer is kept, and nothing has changed.
	ErrReused = errors.New("idempotency key reused")
	// ErrInterrupted says that the handler has begun, and its answer is not kept: the lock was lost, or the store
	// failed. Nobody knows what the handler has done. The next request with this key runs it again.
	ErrInterrupted = errors.New("interrupted")
)

// A kept answer, as the store has it.
type kept[Answer any] struct {
	Request string // the fingerprint
	Answer  Answer
}

// do returns the answer to a request: the kept one, or that of work, which do then keeps. work reports whether its
// answer is to be kept. A caller that goes ends the wait for the lock, and not the work: it will ask again. The loss of
// the lock ends the context of work. After an error that is not ErrInterrupted, work has not begun.
func do[Answer any](ctx context.Context, o *Once, id, request string, work func(context.Context) (a Answer, keep bool)) (answer Answer, err error) {
	begun, done := false, false
	err = strategy.DoWithin(ctx, o.Locks.NewLock(id), o.Wait, func(_ context.Context, lease strategy.Lease) error {
		held, cancel := lease.Context(context.WithoutCancel(ctx))
		defer cancel()
		holder, err := fencing.Of(lease)
		if err != nil {
			return err
		}
		text, err := o.Answers.Read(held, id, holder)
		if err != nil {
			return err
		}
		if text != "" {
			before := kept[Answer]{}
			if err := json.Unmarshal([]byte(text), &before); err != nil {
				return fmt.Errorf("the answer kept for %q: %w", id, err)
			}
			if before.Request != request {
				return ErrReused
			}
			answer, done = before.Answer, true
			return nil
		}
		begun = true
		a, keep := work(context.WithValue(held, leaseKey{}, lease))
		if err := lease.Err(); err != nil {
			return err // another request may have begun
		}
		if keep {
			text, err := json.Marshal(kept[Answer]{request, a})
			if err != nil {
				return err
			}
			if err := o.Answers.Write(held, id, string(text), holder); err != nil {
				return err
			}
		}
		answer, done = a, true
		return nil
	})
	switch {
	case done: // a release that failed changes nothing: the engine repeats it
		return answer, nil
	case begun:
		return answer, fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	return answer, err
}

type leaseKey struct{}

// LeaseFrom returns the lease under which a handler runs, from its context: give its fence to the stores that the
// handler writes to. nil: no lock is held.
func LeaseFrom(ctx context.Context) strategy.Lease {
	lease, _ := ctx.Value(leaseKey{}).(strategy.Lease)
	return lease
}

const maxKey = 255 // bytes

// idOf names the lock and the kept answer of a caller's key. A key may be in quotes, as the IETF draft has it.
func idOf(caller string, keys []string) (string, error) {
	if len(keys) != 1 {
		return "", ErrKey
	}
	key := keys[0]
	if n := len(key); n > 1 && key[0] == '"' && key[n-1] == '"' {
		key = key[1 : n-1]
	}
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }
	if key == "" || len(key) > maxKey || strings.ContainsFunc(key, odd) {
		return "", ErrKey
	}
	return "idempotency/" + url.PathEscape(caller) + "/" + key, nil
}

// fingerprint is the same for the same parts, and for no others.
func fingerprint(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
