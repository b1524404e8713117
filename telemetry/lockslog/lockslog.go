// Package lockslog writes what happens to locks to a [log/slog.Logger].
//
//	locks, err := luascript.New(node, strategy.Options{
//		Observe: lockslog.New(slog.Default(), lockslog.Options{}),
//	})
//
// Each event is a line with a fixed message and attributes with fixed names:
//
//	message                 level  attributes next to lock and token
//	lock attempt            –      attempt, took, error
//	lock held by another    DEBUG  attempt, holder, ttl
//	lock acquired           DEBUG  attempt, waited
//	lock servers fail       WARN   attempt, waited, error; no token
//	lock not acquired       DEBUG  waited, error; no token
//	lock renewed            DEBUG  took
//	lock renewal failed     WARN   took, error
//	lock lost               ERROR  held, error
//	lock released           DEBUG  held, error
//	lock undo failed        WARN   took, error
//
// lock is the lock's name. token differs from lease to lease. attempt counts the attempts of the
// call, from 1. waited, took and held are durations: of the call, of one request (or of the undo), of the lease.
// holder has the lock, and ttl says for how long if it does not renew. An attribute that would be
// empty is left out.
//
// A level above DEBUG means that somebody should act ([DefaultLevel]): a call that the servers
// failed is a WARN, and so is a release that they did not confirm; a release that found the lock
// lost is an ERROR. Attempts are not logged: a waiter may make many. A call that goes on while the servers fail
// ([strategy.Options].RetryOnError) is a WARN every 10 s.
//
// # Tokens
//
// The token of a hold is enough to take the lock from its holder. So a token is logged in short
// ([strategy.ShortToken]): its last 6 bytes, and its label. [Options].WholeTokens turns that off.
//
// A [slog.Handler] gets the context of [strategy.Event]. If the event belongs to a call, that has the
// caller's trace.
package lockslog

import (
	"errors"
	"log/slog"
	"math"

	"github.com/lockstrategies/locks/strategy"
)

// Never is the level of events that are not logged, whatever the logger lets through.
const Never = slog.Level(math.MinInt)

// Options says what is logged. The zero value is the default.
type Options struct {
	// Level is at which level an event is logged; [Never] for not at all. It must be fast,
	// and must not call back into the Strategy. Default [DefaultLevel].
	Level func(strategy.Event) slog.Level

	// WholeTokens logs token and holder in full. The text of an error still has them in short. Set it
	// only if all readers of the log may take locks, too.
	WholeTokens bool
}

// New returns an observer for [strategy.Options].Observe that writes to log; to what
// [slog.Default] is when New is called, if log is nil. It may serve several strategies at once.
func New(log *slog.Logger, o Options) func(strategy.Event) {
	if log == nil {
		log = slog.Default()
	}
	if o.Level == nil {
		o.Level = DefaultLevel
	}
	return func(e strategy.Event) {
		level := o.Level(e)
		if level == Never || !log.Enabled(e.Context, level) {
			return
		}
		log.LogAttrs(e.Context, level, message(e.Kind), attributes(e, o.WholeTokens)...)
	}
}

// DefaultLevel is ERROR for a lock that is lost, also if only its release finds that; WARN for a
// renewal and an undo that fail, and for a call or a release that a server failed; [Never] for calls and attempts. All
// else is normal, and DEBUG: also that somebody else has the lock, or that the caller stopped waiting.
func DefaultLevel(e strategy.Event) slog.Level {
	switch {
	case e.Kind == strategy.EventAsked, e.Kind == strategy.EventAttempt:
		return Never
	case e.Kind == strategy.EventLost, e.Kind == strategy.EventReleased && errors.Is(e.Err, strategy.ErrLost):
		return slog.LevelError
	case e.Kind == strategy.EventRetry, e.Kind == strategy.EventRenewalFailed, e.Kind == strategy.EventUndoFailed, e.Kind == strategy.EventReleased && e.Err != nil:
		return slog.LevelWarn
	case e.Kind == strategy.EventMissed && serversFailed(e.Err):
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// serversFailed reports whether the servers failed a call. Otherwise it found the lock held, or was
// not allowed.
func serversFailed(err error) bool {
	var server *strategy.ServerError
	return errors.As(err, &server)
}

func message(k strategy.EventKind) string {
	switch k {
	case strategy.EventHeld:
		return "lock held by another"
	case strategy.EventRetry:
		return "lock servers fail"
	case strategy.EventMissed:
		return "lock not acquired"
	case strategy.EventRenewalFailed:
		return "lock renewal failed"
	case strategy.EventUndoFailed:
		return "lock undo failed"
	}
	return "lock " + k.String()
}

func attributes(e strategy.Event, whole bool) []slog.Attr {
	token := strategy.ShortToken
	if whole {
		token = func(t string) string { return t }
	}
	as := make([]slog.Attr, 0, 7)
	as = append(as, slog.String("lock", e.Name))
	if e.Token != "" {
		as = append(as, slog.String("token", token(e.Token)))
	}
	if e.Attempt > 0 {
		as = append(as, slog.Int("attempt", e.Attempt))
	}
	switch e.Kind {
	case strategy.EventAsked: // it took no time
	case strategy.EventHeld: // its error says no more than these
		var held *strategy.HeldError
		if errors.As(e.Err, &held) {
			if held.Holder != "" {
				as = append(as, slog.String("holder", token(held.Holder)))
			}
			if held.TTL > 0 {
				as = append(as, slog.Duration("ttl", held.TTL))
			}
			if held.Permits > 0 {
				as = append(as, slog.Int("taken", held.Taken), slog.Int("permits", held.Permits))
			}
			return as
		}
	case strategy.EventRetry, strategy.EventAcquired, strategy.EventMissed:
		as = append(as, slog.Duration("waited", e.Elapsed))
	case strategy.EventLost, strategy.EventReleased:
		as = append(as, slog.Duration("held", e.Elapsed))
	default:
		as = append(as, slog.Duration("took", e.Elapsed))
	}
	if e.Err != nil {
		as = append(as, slog.String("error", e.Err.Error()))
	}
	return as
}
