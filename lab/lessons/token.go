package lessons

import (
	"errors"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/strategy"
)

var compareDelete = script("compare_delete")

// tokenLessons are about who may delete a lock.
func tokenLessons() []Lesson {
	return []Lesson{{
		Number: 7, Name: "fixed-value", Title: "SET NX PX with a fixed value: a late DEL frees another's lock",
		Idea: "SET with NX and PX makes the key and its TTL in one command. The holder deletes the key when its work is done. " +
			"But the key looks the same for every holder. So a holder that is done only after its TTL deletes the lock of the next one.",
		Fix: "Each hold has a value that no other hold has, a random token. Its holder deletes the key only if it finds that token there.",
		Acts: []Act{
			{Title: "the same value for all, and DEL when the work is done", play: func(s *Stage, a, b, c *client) {
				locked := func(*client) string { return "locked" }
				s.lateRelease(a, b, c, locked, func() { a.do(s.redis(), "DEL", s.key()) })
			}},
			{Title: "a token for each, and DEL only where it is one's own", play: comparedRelease((*client).token)},
			{Title: "a token that all share: the machine's name, or the number of a thread",
				play: comparedRelease(func(*client) string { return "web-1" })},
		},
	}, {
		Number: 8, Name: "compare-delete", Title: "GET, compare, DEL: the lock expires in between",
		Idea: "Each holder writes a token of its own. It reads the key before it deletes it: the lock is its own only if the token is still there. " +
			"But reading and deleting are two commands. Between them the lock can expire, and another client can take it.",
		Fix: "Comparison and deletion have to be one step, in which the server does nothing else: a Lua script. " +
			"(Valkey 9.0 and Redis 8.4 have a command for this one step. A script does it on every server, and can do more in it.)",
		Acts: []Act{
			{Title: "release in two steps, in peace", play: func(s *Stage, a, b *client) {
				a.takes("token-of-A")
				if a.do(s.redis(), "GET", s.key()).is("token-of-A") {
					a.do(s.redis(), "DEL", s.key())
				}
				a.ends()
				b.takes("token-of-B")
				b.stillHas(s.redis(), "token-of-B")
			}},
			{Title: "release in two steps, and a pause between them", play: func(s *Stage, a, b, c *client) {
				a.takes("token-of-A")
				if a.do(s.redis(), "GET", s.key()).is("token-of-A") {
					a.worked()
					a.pauses()
					s.lapse(s.key())
					b.takes("token-of-B")
					a.wakes()
					a.do(s.redis(), "DEL", s.key())
				}
				b.stillHas(s.redis(), "token-of-B")
				c.takes("token-of-C")
			}},
		},
	}, {
		Number: 9, Name: "lua", Title: "Lua: compare and delete in one step",
		Idea: "Redis runs a whole script before it looks at the next command, so nothing can come between a comparison and a deletion. " +
			"A holder that comes late compares, finds another's token, and deletes nothing.",
		Fix: "This is the lock of package luascript, and, with the command in place of the script, of package ifeq. Package fairqueue adds a queue to it (lesson 21). One failure is left, a holder that works on when its TTL is over: the next two lessons.",
		Acts: []Act{
			{Title: "release in one script, and a pause before it", lists: []string{"compare_delete"},
				play: func(s *Stage, a, b, c *client) {
					s.lateRelease(a, b, c, (*client).token, func() { a.eval(s.redis(), compareDelete, s.key(), "token-of-A") })
				}},
			{Title: "release in one script, and a pause after it: no pause fits within", play: func(s *Stage, a, b, c *client) {
				a.takes("token-of-A")
				a.worked()
				a.eval(s.redis(), compareDelete, s.key(), "token-of-A")
				a.pauses()
				b.takes("token-of-B")
				s.note("whatever A does now, it sends no DEL any more")
				a.wakes()
				b.stillHas(s.redis(), "token-of-B")
				c.takes("token-of-C")
			}},
			{Title: "the step that Redis now has as a command", play: func(s *Stage, a, b, c *client) {
				s.lateRelease(a, b, c, (*client).token, func() { a.deletesIfEqual("token-of-A") })
			}},
			{Title: "package luascript: A's own clock tells it first", play: func(s *Stage, a, b, c *client) {
				for _, who := range s.clients {
					who.opens(byLuascript)
				}
				lease := a.begins()
				a.worked()
				a.pauses()
				s.lapse(s.key())
				next := b.begins()
				a.wakes()
				if err := a.releases(lease); errors.Is(err, strategy.ErrLost) {
					s.note("A's lease has ended by A's own clock: A learns it (ErrLost)")
				}
				b.stillHas(s.redis(), next.Token())
				c.acquires()
			}},
		},
	}}
}

func byLuascript(n []driver.Node) driver.Protocol {
	return luascript.On(n[0], luascript.WithoutFences())
}

// takes is SET NX PX with a token.
func (c *client) takes(token string) bool { return c.takesAt(c.s.redis(), token) }

// takesAt is takes at one of several servers.
func (c *client) takesAt(srv *server, token string) bool {
	got := c.do(srv, "SET", c.s.key(), token, "NX", "PX", c.s.px()).is("OK")
	if got {
		c.holds()
	}
	return got
}

// lateRelease is a release by A, whose TTL is over, in the hold of B. token is each client's.
func (s *Stage) lateRelease(a, b, c *client, token func(*client) string, release func()) {
	a.takes(token(a))
	a.worked()
	a.pauses()
	s.lapse(s.key())
	b.takes(token(b))
	a.wakes()
	release()
	b.stillHas(s.redis(), token(b))
	c.takes(token(c))
}

// comparedRelease is that by two commands, and then B's own release.
func comparedRelease(token func(*client) string) func(s *Stage, a, b, c *client) {
	return func(s *Stage, a, b, c *client) {
		s.lateRelease(a, b, c, token, func() { a.comparesAndDeletes(token(a)) })
		b.ends()
		b.comparesAndDeletes(token(b))
		c.takes(token(c))
	}
}

// deletesIfEqual is a release in one command, Redis' or Valkey's, or, where the server has neither, in a script.
func (c *client) deletesIfEqual(token string) {
	srv, key := c.s.redis(), c.s.key()
	if _, err := c.try(srv, "DELEX", key, "IFEQ", token); err == nil {
		return
	}
	c.s.note("DELEX: Redis 8.4 has it, and Valkey 9.2; this server has not")
	if _, err := c.try(srv, "DELIFEQ", key, token); err == nil {
		return
	}
	c.s.note("DELIFEQ: Valkey 9.0 has it; this server has not: so a script has to do")
	c.eval(srv, compareDelete, key, token)
}

// comparesAndDeletes is a release in two commands.
func (c *client) comparesAndDeletes(token string) {
	if c.do(c.s.redis(), "GET", c.s.key()).is(token) {
		c.do(c.s.redis(), "DEL", c.s.key())
	} else {
		c.s.note("%s does not find its token, and deletes nothing", c.name)
	}
}
