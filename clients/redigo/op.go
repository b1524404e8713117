package redigonode

import (
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
)

// An op is one command on its way through the pipe, and its caller.
type op struct {
	cmd  string
	args []any // plain values, see plain
	due  time.Time

	// Of a joint script; see joint.go.
	script      *driver.Script // nil: its command is its own
	lead        *op            // the first of those that share its command; nil: it has its own
	nextSharing *op            // the next of them
	joined      atomic.Int32   // lead: how many of them have been sent

	// progress says how far the command got. The writer moves it on without the
	// pipe's lock; the goroutine that moves it away from queued decides whether it is sent.
	progress atomic.Int32

	// Guarded by the pipe's lock.
	role      role  // what its caller does for all
	on        *wire // where
	asleep    bool  // its caller waits for a signal; in the ring of sleepers
	abandoned bool  // its caller has left; nobody wants the reply
	finished  bool  // reply, err and kind are set
	resend    bool  // refused by a replica that has been left: to be sent once more
	resent    bool  // that has been done
	reply     any
	err       error
	kind      error // nil: answered; otherwise err is the reason for this kind
	reuse     bool  // nothing refers to the op any more but its caller

	signals chan signal

	prev, next *op // the ring
}

// The stages of a command.
const (
	queued  = iota
	sending // its bytes may be on their way
	sent    // the writer has done with it
	dropped // its caller left before it was sent: no byte, no reply
)

// A role is a duty of one caller for all; see pipe.
type role int

const (
	none role = iota
	writer
	reader
)

// A signal wakes a caller.
type signal int

const (
	recheck signal = iota // something has changed, or its time is over
	done                  // finished; what is in the op is the caller's alone
)

// newOp takes an op that a caller has given back, or makes one.
func (p *pipe) newOp(cmd string, due time.Time) *op {
	o, _ := p.ops.Get().(*op)
	if o == nil {
		// Two signals at most: one to recheck, and done.
		o = &op{signals: make(chan signal, 2)}
	}
	o.cmd, o.due = cmd, due
	return o
}

func (o *op) add(arg any) { o.args = append(o.args, arg) }

// addKey adds a string, for which there is room. The op's last use may have had the same string in
// the same place, because callers go on with their locks. Then addKey uses that again: to make an
// any of a string is an allocation.
func (o *op) addKey(key string) {
	n := len(o.args)
	if o.args[:n+1][n] == key {
		o.args = o.args[:n+1]
		return
	}
	o.args = append(o.args, key)
}

// recycle gives the op back. Only its caller may do so, and only when it was
// answered in the ordinary way: a queue, a batch or a writer may still refer to
// any other.
func (p *pipe) recycle(o *op) {
	args := o.args[:0]  // see addKey
	if cap(args) > 64 { // one huge call must not be remembered for ever
		args = nil
	}
	o.cmd, o.args, o.on, o.reply, o.err, o.kind = "", args, nil, nil, nil, nil
	o.script, o.lead, o.nextSharing = nil, nil, nil
	o.role, o.asleep, o.abandoned, o.finished, o.reuse, o.resend, o.resent = none, false, false, false, false, false, false
	o.progress.Store(queued)
	p.ops.Put(o)
}

// grant gives the caller a role.
func (o *op) grant(r role, w *wire) {
	o.wake()
	o.role, o.on = r, w
}

// wake has the caller recheck, if no signal waits for it yet.
func (o *op) wake() {
	if o.asleep && len(o.signals) == 0 {
		o.signals <- recheck
	}
}

// joinSleepers puts the op into the ring of those whose callers sleep.
func (o *op) joinSleepers(ring *op) {
	o.asleep = true
	o.prev, o.next = ring, ring.next
	o.next.prev, ring.next = o, o
}

func (o *op) leaveSleepers() {
	if !o.asleep {
		return
	}
	o.asleep = false
	o.prev.next, o.next.prev = o.next, o.prev
}

// answer hands the caller its reply.
func (o *op) answer(reply any, err error) { o.finish(reply, err, nil) }

// fail ends the call with what is known about it.
func (o *op) fail(kind, err error) { o.finish(nil, err, kind) }

func (o *op) finish(reply any, err, kind error) {
	if o.finished || o.abandoned {
		return
	}
	o.finished, o.reply, o.err, o.kind = true, reply, err, kind
	o.reuse = kind == nil && o.progress.Load() == sent
	if o.asleep {
		o.leaveSleepers()
		o.signals <- done // the last that is done to the op
	}
}

// A fifo is a queue of ops that keeps its memory.
type fifo struct {
	ops  []*op
	head int
}

func (f *fifo) push(os ...*op) { f.ops = append(f.ops, os...) }

func (f *fifo) empty() bool { return f.head == len(f.ops) }

// cut takes back the n pushed last.
func (f *fifo) cut(n int) {
	f.ops = f.ops[:max(len(f.ops)-n, f.head)]
}

func (f *fifo) waiting() []*op { return f.ops[f.head:] }

func (f *fifo) pop() *op {
	o := f.ops[f.head]
	f.head++
	if f.head > len(f.ops)/2 { // fewer are moved than have been popped
		n := copy(f.ops, f.ops[f.head:])
		clear(f.ops[n:])
		f.ops, f.head = f.ops[:n], 0
	}
	return o
}
