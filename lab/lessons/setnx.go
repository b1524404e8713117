package lessons

// setnxLessons are those of a time when Redis could not set a key and its TTL in one step.
func setnxLessons() []Lesson {
	return []Lesson{{
		Number: 1, Name: "setnx", Title: "SETNX alone: the holder dies",
		Idea: "SETNX sets a key only if the key does not exist. So of all clients that ask, one gets the answer 1, and holds the lock; it deletes the key when its work is done. " +
			"But nobody else deletes it, and a holder can die.",
		Fix: "A lock needs an end that Redis brings about without the holder: a TTL, a time to live.",
		Acts: []Act{
			{Title: "before SETNX: look, then set (IsLock, then Add)", play: func(s *Stage, a, b *client) {
				free := map[*client]bool{}
				for _, c := range []*client{a, b} {
					free[c] = c.do(s.redis(), "EXISTS", s.key()).is(0)
				}
				for _, c := range []*client{a, b} {
					if free[c] {
						c.do(s.redis(), "SET", s.key(), c.name)
						c.holds()
					}
				}
			}},
			{Title: "SETNX, and DEL when the work is done", play: func(s *Stage, a, b *client) {
				take := func(c *client) bool {
					got := c.do(s.redis(), "SETNX", s.key(), c.name).is(1)
					if got {
						c.holds()
					}
					return got
				}
				take(a)
				take(b)
				a.do(s.redis(), "DEL", s.key())
				a.ends()
				take(b)
				b.dies()
				s.passes(s.ttl)
				s.freed(a, func() bool { return take(a) }, s.endless)
			}},
			{Title: "SETNX, and a time to live (TTL) by PEXPIRE", play: func(s *Stage, a, b *client) {
				a.setsThenExpires()
				b.setsThenExpires()
				a.dies()
				s.lapse(s.key())
				s.freed(b, b.setsThenExpires, s.endless)
			}},
		},
	}, {
		Number: 2, Name: "expire", Title: "SETNX, then EXPIRE: the holder dies in between",
		Idea: "SETNX makes the key. EXPIRE (or PEXPIRE, which takes milliseconds) gives it a TTL, and Redis deletes the key when the TTL is over, even if the holder is dead. " +
			"But these are two commands. A client that dies between them leaves a key that has no end.",
		Fix: "One command makes the key and its TTL, so that nobody can die in between: SET with NX and PX.",
		Acts: []Act{
			{Title: "two commands, and a death between them", play: func(s *Stage, a, b *client) {
				if a.do(s.redis(), "SETNX", s.key(), "A").is(1) {
					a.holds()
				}
				a.becomes(Dead, "dies before it sends PEXPIRE")
				a.dead = true
				s.lapse(s.key())
				s.freed(b, b.setsThenExpires, s.endless)
			}},
			{Title: "one command, and a death right after it", play: func(s *Stage, a, b *client) {
				a.takes("A")
				a.dies()
				b.takes("B")
				s.lapse(s.key())
				s.freed(b, func() bool { return b.takes("B") }, s.endless)
			}},
		},
	}}
}

// setsThenExpires is SETNX, and a TTL for what it has set.
func (c *client) setsThenExpires() bool {
	got := c.do(c.s.redis(), "SETNX", c.s.key(), c.name).is(1)
	if got {
		c.do(c.s.redis(), "PEXPIRE", c.s.key(), c.s.px())
		c.holds()
	}
	return got
}
