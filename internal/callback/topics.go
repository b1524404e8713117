package callback

import "slices"

// Topics are what is subscribed on one connection, or about to be, by channel. The node that has
// the connection guards them by a lock, and sends what Join and Part say is to be sent.
type Topics map[string]*Topic

// A Topic is one SUBSCRIBE. It is not revived after its UNSUBSCRIBE: a listener that wants the
// channel again makes another.
type Topic struct {
	Channel string
	Written bool // the server may have heard of it

	confirmed bool
	listeners []*Listener // replaced, never changed: see Listeners
}

// A Listener is one call of Subscribe.
type Listener struct {
	*Callback
	ready chan error
}

// Listen makes a listener of a function.
func Listen(fn func(msg []byte, err error)) *Listener {
	return &Listener{Of(fn), make(chan error, 1)}
}

// Ready gets the outcome of Subscribe, unless the listener has parted before.
func (l *Listener) Ready() <-chan error { return l.ready }

// Join adds a listener. If its channel is subscribed already it is ready; if that is under way
// it will be with the others; and if not, the topic is fresh: SUBSCRIBE is to be sent.
func (ts Topics) Join(channel string, l *Listener) (t *Topic, fresh bool) {
	t = ts[channel]
	if t == nil {
		t, fresh = &Topic{Channel: channel}, true
		ts[channel] = t
	}
	t.listeners = append(slices.Clip(t.listeners), l)
	if t.confirmed {
		l.ready <- nil
	}
	return t, fresh
}

// Part removes a listener. With the last one the topic is over: UNSUBSCRIBE is to be sent.
func (ts Topics) Part(t *Topic, l *Listener) (over bool) {
	i := slices.Index(t.listeners, l)
	if i < 0 {
		return false
	}
	t.listeners = slices.Concat(t.listeners[:i], t.listeners[i+1:])
	return len(t.listeners) == 0 && ts.forget(t)
}

// Confirm ends the wait of a topic's listeners. With the server's refusal the topic is over, too.
func (ts Topics) Confirm(t *Topic, refusal error) {
	t.confirmed = refusal == nil
	for _, l := range t.listeners {
		l.ready <- refusal
	}
	if refusal != nil {
		ts.forget(t)
	}
}

// End is for a connection that is gone: listeners that wait for a confirmation learn why
// there will be none. It returns those that had it, to be called with the error, without the lock.
func (ts Topics) End(why func(*Topic) error) (live []*Listener) {
	for _, t := range ts {
		live = append(live, t.end(why)...)
	}
	return live
}

// Leave is End for some of the channels: those that are now to be subscribed at another server.
// UNSUBSCRIBE is to be sent for each topic left.
func (ts Topics) Leave(elsewhere func(channel string) bool, why func(*Topic) error) (left []*Topic, live []*Listener) {
	for channel, t := range ts {
		if elsewhere(channel) {
			delete(ts, channel)
			left = append(left, t)
			live = append(live, t.end(why)...)
		}
	}
	return left, live
}

// end leaves nobody whom a late confirmation would find.
func (t *Topic) end(why func(*Topic) error) (live []*Listener) {
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
func (ts Topics) forget(t *Topic) bool {
	if ts[t.Channel] != t {
		return false
	}
	delete(ts, t.Channel)
	return true
}

// Confirmed reports whether the server has said that it is subscribed.
func (t *Topic) Confirmed() bool { return t.confirmed }

// Listeners are those who listen now. The slice does not change, so callers can walk it
// without the lock.
func (t *Topic) Listeners() []*Listener { return t.listeners }
