package strategy

import (
	"fmt"
	"strings"
	"time"
)

// Limits of [Options] and of names.
const (
	MinTTL      = 10 * time.Millisecond
	MaxTTL      = 24 * time.Hour
	MaxNameLen  = 1024 // bytes
	MaxLabelLen = 256  // bytes
)

// Options says how a [Strategy] behaves. The zero value is the documented
// default; New returns an error for a value that is not allowed, and the error
// says what is.
type Options struct {
	// TTL is how long a lock lasts without renewal: the servers let go after it,
	// whatever became of the holder. Whole milliseconds, [MinTTL] … [MaxTTL];
	// default 10 s.
	TTL time.Duration

	// OpTimeout bounds each operation, which is one attempt, renewal or release with
	// all its round trips: one or two, with setnxgetset's WatchTakeOver up to eight,
	// with Acknowledged two more. How long Acquire may wait in all is another matter.
	// 1 ms … less than TTL; default the smaller of TTL/6 and 1 s.
	OpTimeout time.Duration

	// Key turns a lock's name into the servers' key. It must be pure, and give
	// different keys for different names; also different from the [SiblingKey]s of
	// others, so it had better add something to the name. Default [DefaultKey]:
	// lock:{name}.
	Key func(name string) string

	// Label is appended to every token, for whoever inspects the lock: a host
	// name, a process id. At most [MaxLabelLen] bytes.
	Label string

	// Backoff gives the ceiling of the pause before attempt n = 1, 2, … of a wait
	// that nothing wakes; the pause is drawn uniformly below it (full jitter) and
	// ends with the holder's remaining TTL and one millisecond at the latest. It
	// must be pure and give more than 0. Default [DefaultBackoff]: 2, 4, 8 … 250 ms.
	Backoff func(attempt int) time.Duration

	// Wait chooses how Acquire waits. Default WaitBest.
	Wait Wait

	// HandOver chooses whether whoever releases a lock may hand it over to the next who
	// waits in this process without asking the servers. Default HandOverBest.
	HandOver HandOver

	// Persist makes Acquire go on waiting also when the servers fail, until ctx
	// ends. Without it Acquire waits only for a holder ([ErrHeld]), and asks again
	// where a grant came too late ([ErrLost]); any other error ends it at once.
	Persist bool

	// Observe, if set, is told what happens, as it happens. It is called by the
	// goroutine that makes it happen: it must be fast, and must not call back
	// into the Strategy. Package telemetry/lockslog has one for log/slog, and
	// telemetry/lockotel one for OpenTelemetry; several are one function that calls them.
	Observe func(Event)
}

// Wait is a way to wait for a lock that somebody else holds.
type Wait int

const (
	// WaitBest is the best that the algorithm offers: WaitQueue where its servers keep
	// a queue, WaitNotice where they tell of releases, WaitPoll elsewhere.
	WaitBest Wait = iota
	// WaitPoll asks again after a random pause; see Options.Backoff.
	WaitPoll
	// WaitNotice sleeps until a release is published or the holder's TTL has run
	// out (and 1 to 3 ms more, so that not all who wait wake at once). While there
	// is no subscription, or the servers name no one holder (rivals have split their
	// votes), it waits as WaitPoll does. New refuses it for an algorithm that publishes
	// nothing.
	WaitNotice
	// WaitQueue takes a place in a queue that the servers keep, one for each process and
	// lock; in the process, contenders stand in line for it. Whoever releases the lock
	// makes the first of the queue its holder in the same step, and the servers tell it:
	// see [Queuer]. Who holds for longer than a third to half of the [HeirTTL] that this
	// grants is extended to the full TTL in the background. Holders of other libraries, and
	// those of strategies that keep no queue, make nobody their heir: then it wakes when
	// their TTL has run out. And who waits without queueing (WaitPoll, WaitNotice) gets the
	// lock only when nobody queues: let all who share a lock wait in the same way. While
	// there is no subscription it waits as WaitPoll does. New refuses it for an algorithm
	// without a queue.
	WaitQueue
)

func (w Wait) String() string {
	switch w {
	case WaitBest:
		return "best"
	case WaitPoll:
		return "poll"
	case WaitNotice:
		return "notice"
	case WaitQueue:
		return "queue"
	}
	return fmt.Sprintf("Wait(%d)", int(w))
}

// HandOver is whether a lock changes hands within a process without a request.
type HandOver int

const (
	// HandOverBest hands a lock over to the next in line of the process where the
	// algorithm reserves fences for that and Wait is WaitQueue: for at most 2 ms, 256
	// times, and half of the TTL, counted from the grant; then whoever waits elsewhere
	// has its turn. Each hold has a token and a fence of its own; the servers know the
	// token of the first. So a release that hands over says nothing of whether the
	// servers still kept the lock: the last of them does.
	HandOverBest HandOver = iota
	// HandOverNone asks the servers each time.
	HandOverNone
)

func (h HandOver) String() string {
	switch h {
	case HandOverBest:
		return "best"
	case HandOverNone:
		return "none"
	}
	return fmt.Sprintf("HandOver(%d)", int(h))
}

// DefaultKey is lock:{name}. The braces are a hash tag: all keys of one lock lie
// in one slot of a Redis Cluster. A leading } would end the tag at once, so it is
// written %7D, and a leading % is written %25 so that no two names meet.
func DefaultKey(name string) string {
	if name != "" && (name[0] == '}' || name[0] == '%') {
		name = fmt.Sprintf("%%%02X%s", name[0], name[1:])
	}
	return "lock:{" + name + "}"
}

// SiblingKey names a key that belongs to key and lies in the same slot of a Redis
// Cluster: lock:{name}:suffix, or, beside a key without a hash tag, {key}:suffix.
// A key that has a } but no hash tag has no such sibling: of [Options].Key's making
// it works on a single Redis only.
func SiblingKey(key, suffix string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if end := strings.IndexByte(rest, '}'); end > 0 {
			return key + ":" + suffix
		}
	}
	return "{" + key + "}:" + suffix
}

// DefaultBackoff doubles from 2 ms to 250 ms.
func DefaultBackoff(attempt int) time.Duration {
	const first, most = 2 * time.Millisecond, 250 * time.Millisecond
	if attempt < 1 {
		return first
	}
	if attempt > 7 { // 2 ms << 7 is past the ceiling
		return most
	}
	return min(first<<(attempt-1), most)
}

// Drift is what a deadline is shortened by: the servers' clocks may run faster
// than ours by 1 %, and they round to milliseconds (2 ms), as in
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/.
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// withDefaults fills what is zero and refuses what is not allowed.
func (o Options) withDefaults() (Options, error) {
	if o.TTL == 0 {
		o.TTL = 10 * time.Second
	}
	if o.TTL < MinTTL || o.TTL > MaxTTL || o.TTL%time.Millisecond != 0 {
		return o, fmt.Errorf("locks: Options.TTL is %v: allowed are whole milliseconds from %v to %v, and 0 for 10s", o.TTL, MinTTL, MaxTTL)
	}
	if o.OpTimeout == 0 {
		o.OpTimeout = min(o.TTL/6, time.Second)
	}
	if o.OpTimeout < time.Millisecond || o.OpTimeout >= o.TTL {
		return o, fmt.Errorf("locks: Options.OpTimeout is %v: allowed are 1ms to less than the TTL of %v, and 0 for the smaller of TTL/6 and 1s", o.OpTimeout, o.TTL)
	}
	if o.Key == nil {
		o.Key = DefaultKey
	}
	if len(o.Label) > MaxLabelLen {
		return o, fmt.Errorf("locks: Options.Label has %d bytes: allowed are %d", len(o.Label), MaxLabelLen)
	}
	if o.Backoff == nil {
		o.Backoff = DefaultBackoff
	}
	if o.Wait < WaitBest || o.Wait > WaitQueue {
		return o, fmt.Errorf("locks: Options.Wait is %d: allowed are WaitBest, WaitPoll, WaitNotice and WaitQueue", int(o.Wait))
	}
	if o.HandOver < HandOverBest || o.HandOver > HandOverNone {
		return o, fmt.Errorf("locks: Options.HandOver is %d: allowed are HandOverBest and HandOverNone", int(o.HandOver))
	}
	return o, nil
}
