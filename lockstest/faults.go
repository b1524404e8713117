package lockstest

import "context"

// A Fault decides what becomes of a request to the server. There are [Unreachable], [LostReply] and [Refuse]; a test may
// write others, such as a slow network:
//
//	func(_ context.Context, _ lockstest.Request, serve func() error) error {
//		time.Sleep(time.Second)
//		return serve()
//	}
//
// It says when and whether the request arrives, by calling serve at most once, and what the caller gets, by what it
// returns. All faults are made of this:
//
//	time.Sleep(d); return serve()                // slow there
//	err := serve(); time.Sleep(d); return err    // slow back
//	serve(); return lockstest.Unknown()          // the reply is lost
//	return lockstest.Unknown()                   // the request is lost
//	return lockstest.Unsent()                    // nobody there
//	return lockstest.Refused("READONLY")         // the server says no
//
// The caller waits no longer than the request's time-out. When that comes, or ctx ends, the caller gets
// strategy.ErrUnknown. The request goes on, and may take effect later, as with a server that was frozen and thaws. The
// fault's ctx does not end with that time-out: to lose a request, return, and do not wait for it.
type Fault func(ctx context.Context, r Request, serve func() error) error

// Unreachable is a [Fault]: the request reaches no server. The caller gets strategy.ErrUnsent, and nothing has changed.
func Unreachable(context.Context, Request, func() error) error {
	return Unsent()
}

// LostReply is a [Fault]: the server does what it is asked, and its reply is lost. The caller gets strategy.ErrUnknown.
func LostReply(_ context.Context, _ Request, serve func() error) error {
	serve() //nolint:errcheck // the reply is lost
	return Unknown()
}

// Refuse returns a [Fault]: the server refuses in these words, such as "OOM command not allowed". The caller gets
// strategy.ErrRefused, and nothing has changed.
func Refuse(words string) Fault {
	return func(context.Context, Request, func() error) error { return Refused(words) }
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
func (l *Locks) intercept(ctx context.Context, r Request, serve func() error) error {
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
