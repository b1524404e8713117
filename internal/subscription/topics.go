package subscription

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lockstrategies/locks/strategy"
)

// topics are what is subscribed on one connection, or about to be, by channel.
type topics map[string]*topic

// A topic is one SUBSCRIBE. It is not revived after its UNSUBSCRIBE: a listener that wants the
// channel again makes another.
type topic struct {
	channel   string
	written   bool // the server may have heard of it
	confirmed bool
	listeners []*listener // replaced, never changed: it is walked without the lock
}

// sent is what is known of a topic that was not confirmed.
func (t *topic) sent() error {
	if t.written {
		return strategy.ErrUnknown
	}
	return strategy.ErrUnsent
}

// A listener is one call of Subscribe.
type listener struct {
	fn    func([]byte, error)
	mu    sync.Mutex // held while fn runs
	over  atomic.Bool
	ready chan error // the outcome of Subscribe
}

func listenerOf(fn func(msg []byte, err error)) *listener {
	return &listener{fn: fn, ready: make(chan error, 1)}
}

// call calls fn unless the subscription is over; with an error it is, after that.
func (l *listener) call(msg []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over.Load() {
		return
	}
	if err != nil {
		l.over.Store(true)
	}
	l.fn(msg, err)
}

// silence makes sure that fn is not called again, and waits for a call under way.
func (l *listener) silence() {
	l.over.Store(true)
	l.mu.Lock() // to wait
	defer l.mu.Unlock()
}

// join adds a listener. If its channel is subscribed already it is ready; if that is under way
// it will be with the others; and if not, the topic is fresh: SUBSCRIBE is to be sent.
func (ts topics) join(channel string, l *listener) (t *topic, fresh bool) {
	t = ts[channel]
	if t == nil {
		t, fresh = &topic{channel: channel}, true
		ts[channel] = t
	}
	t.listeners = append(slices.Clip(t.listeners), l)
	if t.confirmed {
		l.ready <- nil
	}
	return t, fresh
}

// part removes a listener. With the last one the topic is over: UNSUBSCRIBE is to be sent.
func (ts topics) part(t *topic, l *listener) (over bool) {
	i := slices.Index(t.listeners, l)
	if i < 0 {
		return false
	}
	t.listeners = slices.Concat(t.listeners[:i], t.listeners[i+1:])
	return len(t.listeners) == 0 && ts.forget(t)
}

// confirm ends the wait of a topic's listeners. With the server's refusal the topic is over, too.
func (ts topics) confirm(t *topic, refusal error) {
	t.confirmed = refusal == nil
	for _, l := range t.listeners {
		l.ready <- refusal
	}
	if refusal != nil {
		ts.forget(t)
	}
}

// leave ends some of the topics: listeners that wait for a confirmation learn why there will be none. It returns those that
// had it, to be called with the error. UNSUBSCRIBE is to be sent for each topic left, if the connection goes on.
func (ts topics) leave(which func(channel string) bool, why func(*topic) error) (left []*topic, live []*listener) {
	for channel, t := range ts {
		if which(channel) {
			delete(ts, channel)
			left = append(left, t)
			live = append(live, t.end(why)...)
		}
	}
	return left, live
}

// end leaves nobody whom a late confirmation would find.
func (t *topic) end(why func(*topic) error) (live []*listener) {
	listeners := t.listeners
	t.listeners = nil
	if t.confirmed {
		return listeners
	}
	for _, l := range listeners {
		l.ready <- why(t)
	}
	return nil
}

// forget takes a topic out, unless its channel has another by now.
func (ts topics) forget(t *topic) bool {
	if ts[t.channel] != t {
		return false
	}
	delete(ts, t.channel)
	return true
}
