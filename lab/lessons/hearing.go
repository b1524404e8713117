package lessons

import "time"

// listens: from here on the client takes in what is published when the story is there (see
// hears), and not at the moment when it comes, which no two runs have in the same order. It
// comes before the client subscribes.
func (c *client) listens() { c.ears = make(chan chan struct{}) }

// hears has it take in one message, which has come or is about to.
func (c *client) hears() {
	taken := make(chan struct{})
	select {
	case c.ears <- taken:
		<-taken
	case <-time.After(10 * time.Second):
		c.s.Cannot("%s hears nothing", c.name)
	}
}

// listening waits until the client hears. ok is false when the act is over.
func (c *client) listening() (taken func(), ok bool) {
	if c.ears == nil {
		return func() {}, true
	}
	select {
	case t := <-c.ears:
		return func() { close(t) }, true
	case <-c.s.over:
		return nil, false
	}
}
