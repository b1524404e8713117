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
	script *driver.Script // nil: its command is its own
	lead   *op            // the first of those who share its command; nil: it has its own
	mate   *op            // the next of them
	joined atomic.Int32   // lead: how many of them have been sent

	// progress says how far the command got. The writer moves it on without the
	// pipe's lock; the goroutine that moves it away from queued decides whether it is sent.
	progress atomic.Int32

	// Guarded by the pipe's lock.
	role   role  // what its caller does for all
	on     *wire // where
	asleep bool  // its caller is woken through wake; in the ring of sleepers
	gone   bool  // its caller has left; nobody wants the reply
	over   bool  // reply, err and kind are set
	again  bool  // refused by a replica that has been left: to be sent once more
	second bool  // that has been done
	reply  any
	err    error
	kind   error // nil: answered; otherwise err is the reason for this kind
	reuse  bool  // nothing refers to the op any more but its caller

	wake chan signal

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
	look signal = iota // at what changed, or at the time
	done               // over; what is in the op is the caller's alone
)

// newOp takes an op that a caller has given back, or makes one.
func (p *pipe) newOp(cmd string, due time.Time) *op {
	o, _ := p.ops.Get().(*op)
	if o == nil {
		// Two signals at most: one to look, and one that it is over.
		o = &op{wake: make(chan signal, 2)}
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
	o.script, o.lead, o.mate = nil, nil, nil
	o.role, o.asleep, o.gone, o.over, o.reuse, o.again, o.second = none, false, false, false, false, false, false
	o.progress.Store(queued)
	p.ops.Put(o)
}

// grant gives the caller a role.
func (o *op) grant(r role, w *wire) {
	o.nudge()
	o.role, o.on = r, w
}

// nudge wakes the caller, if nothing has yet.
func (o *op) nudge() {
	if o.asleep && len(o.wake) == 0 {
		o.wake <- look
	}
}

// lieDown joins the ring of those who sleep.
func (o *op) lieDown(ring *op) {
	o.asleep = true
	o.prev, o.next = ring, ring.next
	o.next.prev, ring.next = o, o
}

func (o *op) getUp() {
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
	if o.over || o.gone {
		return
	}
	o.over, o.reply, o.err, o.kind = true, reply, err, kind
	o.reuse = kind == nil && o.progress.Load() == sent
	if o.asleep {
		o.getUp()
		o.wake <- done // the last that is done to the op
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
