package strategy

import (
	"fmt"
	"time"
)

// Options says how a [Strategy] behaves. The zero value is the documented default. New returns an error for a value that is not
// allowed, and the error says what is.
type Options struct {
	// TTL is how long the servers keep a lock without renewal. Whole milliseconds (of some servers: seconds), 10 ms … 24 h; default 10 s.
	TTL time.Duration
	// MaxHold bounds how long [Do] and [Lease.KeepAlive](0) keep a lock alive, counted from its grant. The TTL or more; default
	// 0: no bound.
	MaxHold time.Duration
	// FenceTTL is how long the servers keep the last fence of a lock after they issued it. Fences rise even after that: it only
	// says how far the servers' clocks may be set back without harm, if fences come from a clock. If users of a lock differ, the
	// least counts. Whole milliseconds, twice the TTL or more; default the greater of 24 h and twice the TTL; negative: for ever.
	FenceTTL time.Duration
	// OpTimeout bounds one attempt, renewal or release with all its round trips (mostly one). 1 ms … less than the TTL; default
	// the smaller of TTL/6 and 1 s.
	OpTimeout time.Duration
	// Key turns a lock's name into the servers' key. It must be pure, and give different keys for different names, none of which is
	// another with a suffix that begins with a colon: algorithms append such suffixes. Default [DefaultKey]: lock:{name}.
	Key func(name string) string
	// Label is appended to every token, for people who inspect the lock: see [ThisProcess]. At most 256 bytes.
	Label string
	// Backoff gives the ceiling of the random pause before attempt n = 1, 2, … of a wait that nothing wakes. It must be pure and
	// give more than 0. Default 2, 4, 8 … 250 ms.
	Backoff func(attempt int) time.Duration
	Wait    Wait // how Acquire waits; default WaitBest
	// NoHandOver makes every release ask the servers. By default a release passes the lock to the next waiter of the process
	// without a request (of a re-entrant lock with one), for at most 2 ms, 256 holds, and half of the TTL: then other processes
	// have their turn. Each hold has its own token and fence. A lock that several may hold is never passed on.
	NoHandOver bool
	// Acks demands confirmations of each grant and renewal, at two more round trips, and instead of a queue. Default: none. New
	// returns ErrUnsupported where the algorithm has no such thing. With cannot change it.
	Acks         Acks
	RetryOnError bool // Acquire waits also while the servers fail, until ctx ends
	// Observe, if set, is called with each [Event], by the goroutine that makes it happen. It must be fast, and must not call back
	// into the Strategy. See telemetry/lockslog and telemetry/lockotel.
	Observe func(Event)
}

// Wait is a way to wait for a lock that somebody else holds.
type Wait int

const (
	// WaitBest is the best that the algorithm offers: WaitQueue, else WaitNotification, else WaitPoll.
	WaitBest Wait = iota
	// WaitPoll asks again after a random pause (Options.Backoff), as the other ways do while they have no subscription.
	WaitPoll
	// WaitNotification sleeps until a release is published or the holder's TTL has run out.
	WaitNotification
	// WaitQueue takes a place in a queue that the servers keep: one for each process and lock (readers and writers have one each).
	// The holder's release makes the first its successor in the same step. All users of a lock should
	// wait in the same way: a waiter outside the queue gets the lock only when nobody queues.
	WaitQueue
)

func (w Wait) String() string {
	switch w {
	case WaitBest:
		return "best"
	case WaitPoll:
		return "poll"
	case WaitNotification:
		return "notification"
	case WaitQueue:
		return "queue"
	}
	return fmt.Sprintf("Wait(%d)", int(w))
}

// DefaultKey is the default of Options.Key: lock:{name}. The braces are for servers that split their keys among them: they keep the
// keys of a lock together. A leading } would end the tag, so it is written %7D, and a leading % is written %25.
func DefaultKey(name string) string {
	if name != "" && (name[0] == '}' || name[0] == '%') {
		name = fmt.Sprintf("%%%02X%s", name[0], name[1:])
	}
	return "lock:{" + name + "}"
}

// Acks says what has to confirm a grant or a renewal before it counts, of a lock on Redis: replicas, the append-only file, or
// both. Fewer fail-overs then forget a lock; docs/learn/faults.md lists those that still do. If too few confirm, the error is
// ErrUnknown, with an *[AcksError]: the engine undoes a grant, and a renewal does not move the deadline.
type Acks struct {
	Replicas int // how many replicas have to confirm (WAIT): 0 … 100
	// AOF demands that the append-only file has it, too (WAITAOF: Redis 7.2 or Valkey). With appendfsync everysec set OpTimeout to
	// 2 s or more and TTL to 9 s or more; Valkey needs always.
	AOF bool
}
