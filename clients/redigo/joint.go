package redigonode

import (
	"errors"
	"strings"

	"github.com/lockstrategies/locks/driver/rediskit"
)

// Ops of one joint script (driver.NewJointScript) that are sent together become one
// command. They are all still under way, so none of their callers knows of an order among
// them, and they may change places with others of the batch.

// mostJoined is how many ops share a command at most: enough that the cost of the command itself
// hardly counts, few enough that its script takes well under a millisecond.
const mostJoined = 64

// mayJoin reports whether ops may share a command. A server that has not introduced itself
// may be a proxy, which sends them where the first key belongs. It is known only when the
// connection is there.
func (n *node) mayJoin() bool { return !n.cluster.Load() && !n.unordered.Load() }

// mustGoAlone reports whether an op is to be sent again, as a command of its own, because a
// command that it shared was refused, and has done nothing, for the keys of another op.
func (n *node) mustGoAlone(err error) bool {
	if err == nil {
		return false // before there is anything to allocate: it is asked of every reply
	}
	var all jointRefusal
	if !errors.As(err, &all) {
		return false
	}
	if rediskit.SeveralSlots(err) {
		n.cluster.Store(true)
		return true
	}
	return strings.HasPrefix(all.Error(), "NOPERM ") // to a key of one of them, perhaps
}

// jointRefusal is a refusal of a command that several ops share.
type jointRefusal struct{ error }

func (e jointRefusal) Unwrap() error { return e.error }

// keys is how many the op has, if it is a script's.
func (o *op) keys() int { return o.args[1].(int) }

// sharing is how many ops the command serves that has been sent for this one.
func (o *op) sharing() int {
	if o.lead == nil {
		return 1
	}
	return int(o.lead.joined.Load())
}

// joins reports whether o may share the command of other.
func (o *op) joins(other *op) bool {
	if o.script != other.script || o.cmd != other.cmd || len(o.args) != len(other.args) || o.keys() != other.keys() {
		return false
	}
	shared, _ := o.script.Joint()
	for i := 2 + o.keys(); i < min(2+o.keys()+shared, len(o.args)); i++ {
		if !same(o.args[i], other.args[i]) {
			return false
		}
	}
	return true
}

// same reports whether two arguments are equal, of the kinds that callers have in common.
func same(a, b any) bool {
	switch a := a.(type) {
	case string:
		s, ok := b.(string)
		return ok && a == s
	case int:
		n, ok := b.(int)
		return ok && a == n
	case int64:
		n, ok := b.(int64)
		return ok && a == n
	}
	return false
}

// join appends a batch to ordered, and returns that. Ops that will share a command stand side by side
// in it, if any may. Each of them knows the first, its lead.
func join(ordered, batch []*op, may bool) []*op {
	var open [4]struct { // commands to which more may be added
		last *op
		n    int
	}
	oldest := 0
find:
	for _, o := range batch {
		o.lead, o.nextSharing = nil, nil
		if !may || o.script == nil || o.abandoned {
			continue
		}
		for i := range open {
			if c := &open[i]; c.n > 0 && c.n < mostJoined && o.joins(c.last) {
				c.last.nextSharing, o.lead = o, c.last.lead
				c.last, c.n = o, c.n+1
				continue find
			}
		}
		o.lead = o
		open[oldest].last, open[oldest].n = o, 1
		oldest = (oldest + 1) % len(open)
	}
	for _, o := range batch {
		if o.lead == nil {
			ordered = append(ordered, o)
		} else if o.lead == o {
			for mate := o; mate != nil; mate = mate.nextSharing {
				ordered = append(ordered, mate)
			}
		}
	}
	return ordered
}

// sendJoint writes the command that the ops at the head of the batch share, without those
// whose callers have left. It returns how many ops they were.
func (w *wire) sendJoint(batch []*op) (n int, err error) {
	lead := batch[0]
	together := w.together[:0]
	for ; n < len(batch) && batch[n].lead == lead; n++ {
		if batch[n].progress.CompareAndSwap(queued, sending) {
			together = append(together, batch[n])
		}
	}
	lead.joined.Store(int32(len(together))) // before the bytes: the reply is for this many
	if len(together) > 0 {
		w.args = jointArgs(w.args[:0], together)
		err = w.conn.Send(together[0].cmd, w.args...)
	}
	if err == nil {
		for _, o := range together {
			o.progress.Store(sent)
		}
	}
	w.together = together
	return n, err
}

// jointArgs returns the arguments of all ops, as NewJointScript lays them out.
func jointArgs(args []any, together []*op) []any {
	o := together[0]
	shared, _ := o.script.Joint()
	args = append(args, o.args[0], o.keys()*len(together))
	for i := 2; i < len(o.args); i++ {
		if own := i - 2 - o.keys(); own >= 0 && own < shared {
			args = append(args, o.args[i])
			continue
		}
		for _, o := range together {
			args = append(args, o.args[i])
		}
	}
	return args
}

// deliverJoint hands the reply to the command that the oldest op shares with n-1 others to
// each of them, and reports whether it is one.
func (w *wire) deliverJoint(n int, reply any, err error) bool {
	answers, _ := reply.([]any)
	if err == nil && len(answers) != n {
		return false
	}
	for i := 0; i < n; {
		o := w.flight.pop()
		switch {
		case o.progress.Load() == dropped:
			continue
		case err != nil:
			w.answer(o, nil, jointRefusal{err})
		default:
			w.answer(o, answers[i], nil)
		}
		i++
	}
	return true
}
