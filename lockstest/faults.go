package lockstest

import (
	"context"

	"github.com/lockstrategies/locks/conformance"
)

// A Fault decides what becomes of a request to the server: see [conformance.Interceptor]. There are [Unreachable],
// [LostReply] and [Refuse]; a test may write others, such as a slow network:
//
//	func(_ context.Context, _ conformance.Request, serve func() error) error {
//		time.Sleep(time.Second)
//		return serve()
//	}
type Fault = conformance.Interceptor

// Unreachable is a [Fault]: the request reaches no server. The caller gets strategy.ErrUnsent, and nothing has changed.
func Unreachable(context.Context, conformance.Request, func() error) error {
	return conformance.Unsent()
}

// LostReply is a [Fault]: the server does what it is asked, and its reply is lost. The caller gets strategy.ErrUnknown.
func LostReply(_ context.Context, _ conformance.Request, serve func() error) error {
	serve() //nolint:errcheck // the reply is lost
	return conformance.Unknown()
}

// Refuse returns a [Fault]: the server refuses in these words, such as "OOM command not allowed". The caller gets
// strategy.ErrRefused, and nothing has changed.
func Refuse(words string) Fault {
	return func(context.Context, conformance.Request, func() error) error { return conformance.Refused(words) }
}

// Fail makes every request of all processes, in the background too, meet f from now on. Fail(nil) ends that, and
// the rest of FailNext. Hold, Lose and AssertFree meet no fault.
func (l *Locks) Fail(f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault, l.script = f, nil
}

// FailNext makes the next requests of all processes meet these faults, one each and in this order; nil lets a request
// through. They come after those of an earlier FailNext. Then Fail decides again. Every request counts: to acquire, to
// subscribe, to renew, to release.
func (l *Locks) FailNext(faults ...Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.script = append(l.script, faults...)
}

// intercept stands between all processes and the server.
func (l *Locks) intercept(ctx context.Context, r conformance.Request, serve func() error) error {
	if f := l.next(ctx); f != nil {
		return f(ctx, r, serve)
	}
	return serve()
}

// next returns what a request meets; nil: no fault.
func (l *Locks) next(ctx context.Context) (f Fault) {
	if ctx.Value(pastKey{}) != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.script) == 0 {
		return l.fault
	}
	f, l.script = l.script[0], l.script[1:]
	return f
}

type pastKey struct{}

// pastFaults is the context of requests that meet no fault.
var pastFaults = context.WithValue(context.Background(), pastKey{}, true)
