package mutants

// Memory judges in this process.
var Memory = Judge{Package: "./conformance", Test: "TestMemory/memory"}

// What is beyond protocols that the suite can judge, tests of the machinery's own do.
var (
	HandedOver = Judge{Package: "./strategy", Test: "TestHandedOverLease", Own: true}
	Tenure     = Judge{Package: "./strategy", Test: "TestTenureEnds", Own: true}
	Heirs      = Judge{Package: "./strategy", Test: "TestHeirIsExtended", Own: true}
	Clocks     = Judge{Package: "./strategy", Test: "TestClockOfAnotherServer", Own: true}
	Places     = Judge{Package: "./strategy", Test: "TestPlaceIsInherited", Own: true}

	Half     = Judge{Package: "./internal/node", Test: "TestHalf", Own: true}
	Gather   = Judge{Package: "./internal/node", Test: "TestGather", Own: true}
	Joint    = Judge{Package: "./internal/node", Test: "TestJointCommand", Own: true}
	NotJoint = Judge{Package: "./internal/node", Test: "TestNotJoined", Own: true}
	Leavers  = Judge{Package: "./internal/node", Test: "TestJointCallerLeaves", Own: true}
	Replies  = Judge{Package: "./internal/node", Test: "TestJointReplyIsNotForAll", Own: true}
	Refusals = Judge{Package: "./internal/node", Test: "TestJointRefusal", Own: true}
	Topics   = Judge{Package: "./internal/callback", Test: "TestTopics", Own: true}
	Words    = Judge{Package: "./strategy", Test: "TestErrorReply", Own: true}
	Polling  = Judge{Package: "./strategy", Test: "TestBusyPoll", Own: true}
	Proxies  = Judge{Package: "./internal/node", Test: "TestNothingIsJoinedBehindAProxy", Own: true}
)

// machinery are faults of packages strategy, internal/node and internal/callback. They are judged in memory, or
// by servers that the judges make up.
func machinery() []Mutant {
	return []Mutant{
		// Looking for replies.
		{
			Name: "whoever wants to polls", File: "strategy/busypoll_unix.go",
			Old: "polls.CompareAndSwap(false, true)", New: "(polls.CompareAndSwap(false, true) || true)",
			Judge: Polling, Killed: []string{"OneAtATime"},
		},
		{
			Name: "who has polled once polls for ever", File: "strategy/busypoll_unix.go",
			Old: "\t\tpolls.Store(false)\n", New: "",
			Judge: Polling, Killed: []string{"PollsLessAndLess"},
		},
		{
			Name: "what never comes in time is always polled for", File: "strategy/busypoll_unix.go",
			Old: "c.rest.Store(1<<misses - 1)", New: "",
			Judge: Polling, Killed: []string{"PollsLessAndLess"},
		},

		{
			Name: "who polls keeps to itself what is wrong", File: "strategy/busypoll_unix.go",
			Old: "n > 0 || err != nil", New: "n > 0",
			Judge: Polling, Killed: []string{"IsReset"},
		},

		// Waiting.
		{
			Name: "everybody asks the servers before standing in line", File: "strategy/acquire.go",
			Old: "if !l.s.hasLine(l.key) {", New: "if true {",
			Judge: Memory, Killed: []string{"WaitersAreCheap"},
		},
		{
			Name: "the last to come is served second", File: "strategy/line.go",
			Old: "ln.places = append(ln.places, p)", New: "ln.places = slices.Insert(ln.places, min(1, len(ln.places)), p)",
			Judge: Memory, Killed: []string{"FirstComeFirstServed"},
		},
		{
			Name: "who has subscribed does not ask again", File: "strategy/line.go",
			Old: "ln.why.ask = true // also for the next, should this one leave now\n\treturn true, true", New: "return false, true",
			Judge: Memory, Killed: []string{"NoMissedRelease"},
		},
		{
			Name: "a wait that ends does not say that the lock is held", File: "strategy/acquire.go",
			Old: `fmt.Errorf("%w; gave up after %v: %w", err,`, New: `fmt.Errorf("%v; gave up after %v: %w", err,`,
			Judge: Memory, Killed: []string{"WaitLimit", "CancelledWaiting"},
		},
		{
			Name: "a wait that ends does not say why", File: "strategy/acquire.go",
			Old: "err, waited, contextError(ctx))", New: "err, waited, ctx.Err())",
			Judge: Memory, Killed: []string{"CancelledWaiting"},
		},
		{
			Name: "Persist does not", File: "strategy/acquire.go",
			Old: "return l.s.o.RetryOnError", New: "return false",
			Judge: Memory, Killed: []string{"Persist"},
		},
		{
			Name: "a context that is done is not looked at", File: "strategy/lock.go",
			Old: "if ctx.Err() != nil {\n\t\treturn fmt.Errorf(\"lock %q: %w\", l.name, contextError(ctx))", New: "if false {\n\t\treturn contextError(ctx)",
			Judge: Memory, Killed: []string{"CancelledBefore"},
		},

		// The queue.
		{
			Name: "the fence of a lock that was handed over is the one before's", File: "strategy/queue.go",
			Old: "\t\tg.Fence++\n", New: "",
			Judge: HandedOver, Killed: []string{"Extend"},
		},
		{
			Name: "a renewal gives a lock that was handed over its first fence again", File: "strategy/lease.go",
			Old: "|| l.own != \"\" ||", New: "||",
			Judge: HandedOver, Killed: []string{"Extend"},
		},
		{
			Name: "a tenure never ends", File: "strategy/queue.go",
			Old: "now.Sub(ln.tenure) >= tenure", New: "false",
			Judge: Tenure, Killed: []string{"time"},
		},
		{
			Name: "more holds are handed over than were reserved", File: "strategy/queue.go",
			Old: "case g.Fences < 2, ", New: "case ",
			Judge: Tenure, Killed: []string{"count"},
		},
		{
			Name: "a hold is handed over though half of its TTL is gone", File: "strategy/queue.go",
			Old: "now.After(g.Start.Add(g.TTL / 2))", New: "now.After(g.Start.Add(g.TTL))",
			Judge: Tenure, Killed: []string{"half_the_TTL"},
		},
		{
			Name: "an heir that holds on is not extended", File: "strategy/keepalive.go",
			Old: "case !l.keep && !l.brief:", New: "case !l.keep:",
			Judge: Heirs, Killed: []string{"false"},
		},
		{
			Name: "a new server's grants are timed by the clock of the one before", File: "strategy/line.go",
			Old: "\tln.doubtClock()\n", New: "",
			Judge: Clocks, Killed: []string{"ahead"},
		},
		{
			Name: "a head that leaves takes its place in the queue along", File: "strategy/line.go",
			Old: "case len(ln.places) == 0 || !b.suits(ln.places[0]):", New: "case b.queued || !b.suits(ln.places[0]):",
			Judge: Places, Killed: []string{"next"},
		},

		// Leases.
		{
			Name: "the deadline counts from the reply", File: "strategy/lock.go",
			Old: "newLease(l.s, c, g, start)", New: "newLease(l.s, c, g, end)",
			Judge: Memory, Killed: []string{"DeadlineFromRequest", "LateGrant"},
		},
		{
			Name: "a grant that came too late is a lease", File: "strategy/lock.go",
			Old: "if !end.Before(lease.deadline) || l.s.isClosed() {", New: "if l.s.isClosed() {",
			Judge: Memory, Killed: []string{"LateGrant"},
		},
		{
			Name: "a lease can be released twice", File: "strategy/lease.go",
			Old: "after := l.look()\n\tif l.end != nil {\n\t\terr := l.end\n\t\tl.mu.Unlock()", New: "after := l.look()\n\tif l.isLost() {\n\t\terr := l.end\n\t\tl.mu.Unlock()",
			Judge: Memory, Killed: []string{"ReleaseOnce"},
		},
		{
			Name: "a release is given up with its context", File: "strategy/lease.go",
			Old: "s.p.Release(context.WithoutCancel(ctx), c)", New: "s.p.Release(ctx, c)",
			Judge: Memory, Killed: []string{"ReleaseDetached"},
		},
		{
			Name: "all tokens are one", File: "strategy/token.go",
			Old: "return id.String(), nil", New: "return id.String()[:0] + \"token\", nil",
			Judge: Memory, Killed: []string{"TokensUnique", "ExtendOnlyOwn"},
		},
		{
			Name: "tokens do not tell when they were drawn", File: "strategy/token.go",
			Old: "id.SetVersion(uuid.V7)", New: "id.SetVersion(uuid.V4)",
			Judge: Memory, Killed: []string{"Inspect"},
		},
		{
			Name: "a release closes Lost", File: "strategy/lease.go",
			Old: "&& l.lost != nil {", New: "|| l.lost != nil {",
			Judge: Memory, Killed: []string{"ReleaseIsNoLoss", "Detach"},
		},
		{
			Name: "a context ends without a cause", File: "strategy/lease.go",
			Old: "x.cancel(end)", New: "x.cancel(nil)",
			Judge: Memory, Killed: []string{"ContextEnds"},
		},
		{
			Name: "Detach keeps the token for itself", File: "strategy/lease.go",
			Old: "return c.Token, nil", New: "return c.Token[:0], nil",
			Judge: Memory, Killed: []string{"Detach"},
		},
		{
			Name: "Do drops what its function says", File: "strategy/lock.go",
			Old: "return fn(held, lease)", New: "fn(held, lease)\n\treturn nil",
			Judge: Memory, Killed: []string{"Do"},
		},

		// Renewal and loss.
		{
			Name: "the clock has no say", File: "strategy/lease.go",
			Old: "if time.Now().Before(l.deadline) {\n\t\tl.plan()", New: "if true {\n\t\tl.plan()",
			Judge: Memory, Killed: []string{"LossByDeadline"},
		},
		{
			Name: "a renewal under way delays the loss", File: "strategy/keepalive.go",
			Old: "if l.watch {", New: "if l.watch && !l.busy {",
			Judge: Memory, Killed: []string{"LossWithoutNetwork"},
		},
		{
			Name: "the maximum hold is ten times as long", File: "strategy/lease.go",
			Old: "l.until = l.granted.Add(maxHold)", New: "l.until = l.granted.Add(10 * maxHold)",
			Judge: Memory, Killed: []string{"MaxHold"},
		},
		{
			Name: "any maximum hold will do", File: "strategy/lease.go",
			Old: "if maxHold != 0 && maxHold < l.s.o.TTL {", New: "if maxHold < 0 {",
			Judge: Memory, Killed: []string{"BadMaxHold"},
		},

		// Names and options.
		{
			Name: "names may be of any length", File: "strategy/strategy.go",
			Old: `if name == "" || len(name) > MaxNameLen {`, New: `if name == "" {`,
			Judge: Memory, Killed: []string{"BadNames"},
		},
		{
			Name: "TTLs may be of any fineness", File: "strategy/options.go",
			Old: "|| o.TTL%time.Millisecond != 0 {", New: "{",
			Judge: Memory, Killed: []string{"BadOptions"},
		},
		{
			Name: "two names share a key", File: "strategy/options.go",
			Old: "(name[0] == '}' || name[0] == '%')", New: "name[0] == '}'",
			Judge: Memory, Killed: []string{"OddNames"},
		},

		// What servers say, and who listens.
		{
			Name: "a script that a cluster ends has changed nothing", File: "strategy/node.go",
			Old: "\t\tkind = ErrUnknown\n\t}\n\treturn &ServerError{Node: node,", New: "\t}\n\treturn &ServerError{Node: node,",
			Judge: Words, Killed: []string{"Redis_6", "Redis_7"},
		},
		{
			Name: "who joins a subscription waits for its confirmation", File: "internal/callback/topics.go",
			Old: "if t.confirmed {\n\t\tl.ready <- nil", New: "if false {\n\t\tl.ready <- nil",
			Judge: Topics, Killed: []string{"joined_late"},
		},
		{
			Name: "who parts ends the others' subscription", File: "internal/callback/topics.go",
			Old: "return len(t.listeners) == 0 && ts.forget(t)", New: "return ts.forget(t)",
			Judge: Topics, Killed: []string{"parted"},
		},
		{
			Name: "who parts is taken out under those who walk", File: "internal/callback/topics.go",
			Old: "slices.Concat(t.listeners[:i], t.listeners[i+1:])", New: "slices.Delete(t.listeners, i, i+1)",
			Judge: Topics, Killed: []string{"parted"},
		},
		{
			Name: "a late refusal is the next subscription's", File: "internal/callback/topics.go",
			Old: "if ts[t.Channel] != t {", New: "if ts[t.Channel] == nil {",
			Judge: Topics, Killed: []string{"followed"},
		},

		// Who sends for those who come together.
		{
			Name: "a writer whose place was taken sends", File: "internal/node/pipe.go",
			Old: "return w.writer == o\n", New: "return true\n",
			Judge: Half, Killed: []string{"LastSends"},
		},
		{
			Name: "who sends for half is not known to", File: "internal/node/pipe.go",
			Old: "\t\tw.writer = o // see", New: "\t\t// see",
			Judge: Half, Killed: []string{"LastSends"},
		},
		{
			Name: "who sends for half has the guard of the one before", File: "internal/node/pipe.go",
			Old: "for the one before\n\t\tp.guard(w, o)", New: "for the one before",
			Judge: Half, Killed: []string{"LastSends"},
		},
		{
			Name: "others send beside who sends for half", File: "internal/node/pipe.go",
			Old: "w.crowd, w.gathering = len(w.flight.waiting()), false", New: "w.crowd = len(w.flight.waiting())",
			Judge: Half, Killed: []string{"LastSends"},
		},
		{
			Name: "half wait for the others", File: "internal/node/wire.go",
			Old: "n >= max(w.crowd/2, leastHalf)", New: "n >= max(w.crowd, leastHalf)",
			Judge: Half, Killed: []string{"Half", "LastSends"},
		},
		{
			Name: "each sends for himself", File: "internal/node/wire.go",
			Old: "n >= max(w.crowd/2, leastHalf)", New: "n >= w.crowd/2",
			Judge: Half, Killed: []string{"Few"},
		},
		{
			Name: "half are sent over a connection that takes no more", File: "internal/node/wire.go",
			Old: "w.gathering && !w.retired &&", New: "w.gathering &&",
			Judge: Half, Killed: []string{"Retired"},
		},
		{
			Name: "half are sent beside a writer at work", File: "internal/node/wire.go",
			Old: "w.gathering && !w.retired &&", New: "!w.retired &&",
			Judge: Half, Killed: []string{"NoneWrites"},
		},

		{
			Name: "a writer waits for those who come first only", File: "internal/node/pipe.go",
			Old: "before = len(p.queue)", New: "before = 1 << 30",
			Judge: Gather, Killed: []string{"All"},
		},
		{
			Name: "a writer whose time is over goes on waiting", File: "internal/node/pipe.go",
			Old: "w.gone || w.retired || timeup.Why(ctx, o.due) != nil {", New: "w.gone || w.retired {",
			Judge: Gather, Killed: []string{"Late"},
		},
		{
			Name: "a connection is given up for a writer who waits for others", File: "internal/node/pipe.go",
			Old: "passed(w.guardAt) && !w.gathering {", New: "passed(w.guardAt) {",
			Judge: Gather, Killed: []string{"Guarded"},
		},
		{
			Name: "a writer without a connection waits for others", File: "internal/node/pipe.go",
			Old: "w.gone || w.retired || timeup", New: "w.retired || timeup",
			Judge: Gather, Killed: []string{"Gone"},
		},
		{
			Name: "a writer waits for others over a connection that takes no more", File: "internal/node/pipe.go",
			Old: "w.gone || w.retired || timeup", New: "w.gone || timeup",
			Judge: Gather, Killed: []string{"Retired"},
		},

		// What serves several callers in one command.
		{
			Name: "answers are handed out from the last", File: "internal/node/joint.go",
			Old: "o.answer(answers[i], nil)", New: "o.answer(answers[n-1-i], nil)",
			Judge: Joint, Killed: []string{"layout", "answers", "several"},
		},
		{
			Name: "one caller's refusal is everybody's", File: "internal/node/joint.go",
			Old: "\tfor i := 0; i < n; {\n", New: "\tfor _, a := range answers {\n\t\tif e, ok := a.(redis.Error); ok {\n\t\t\terr = e\n\t\t}\n\t}\n\tfor i := 0; i < n; {\n",
			Judge: Joint, Killed: []string{"answers"},
		},
		{
			Name: "everybody asks for what the first does", File: "internal/node/joint.go",
			Old: "for _, o := range together {\n\t\t\targs = append(args, o.args[i])", New: "for range together {\n\t\t\targs = append(args, o.args[i])",
			Judge: Joint, Killed: []string{"layout", "several"},
		},
		{
			Name: "any number share a command", File: "internal/node/joint.go",
			Old: "c.n < mostJoined && ", New: "",
			Judge: Joint, Killed: []string{"limit"},
		},
		{
			Name: "shared arguments are not compared", File: "internal/node/joint.go",
			Old: "if !same(o.args[i], other.args[i]) {", New: "if false {",
			Judge: NotJoint, Killed: []string{"shared_argument", "shared_integer", "last_shared_argument"},
		},
		{
			Name: "the last shared argument is not compared", File: "internal/node/joint.go",
			Old: "i < min(2+o.keys()+shared,", New: "i < min(1+o.keys()+shared,",
			Judge: NotJoint, Killed: []string{"last_shared_argument"},
		},
		{
			Name: "scripts are not compared", File: "internal/node/joint.go",
			Old: "o.script != other.script || ", New: "",
			Judge: NotJoint, Killed: []string{"script"},
		},
		{
			Name: "numbers of keys are not compared", File: "internal/node/joint.go",
			Old: " || o.keys() != other.keys()", New: "",
			Judge: NotJoint, Killed: []string{"keys_and_arguments"},
		},
		{
			Name: "who sends the script in full is joined with who does not", File: "internal/node/joint.go",
			Old: "o.cmd != other.cmd || ", New: "",
			Judge: NotJoint, Killed: []string{"EVAL"},
		},
		{
			Name: "who has left is sent", File: "internal/node/joint.go",
			Old: "if batch[n].progress.CompareAndSwap(queued, sending) {", New: "if batch[n].progress.Store(sending); true {",
			Judge: Leavers, Killed: []string{"first_in_the_batch", "middle_in_the_batch", "last_in_the_batch"},
		},
		{
			Name: "who has left is counted", File: "internal/node/joint.go",
			Old: "lead.joined.Store(int32(len(together)))", New: "lead.joined.Store(int32(n))",
			Judge: Leavers, Killed: []string{"first_in_the_batch", "middle_in_the_batch", "last_in_the_batch", "all_but_one_in_the_batch"},
		},
		{
			Name: "who has left is handed an answer", File: "internal/node/joint.go",
			Old: "case o.progress.Load() == dropped:", New: "case false:",
			Judge: Leavers, Killed: []string{"middle_in_the_batch"},
		},
		{
			Name: "more answers than callers will do", File: "internal/node/joint.go",
			Old: "len(answers) != n {", New: "len(answers) < n {",
			Judge: Replies, Killed: []string{"long"},
		},
		{
			Name: "one caller's forbidden key is everybody's", File: "internal/node/joint.go",
			Old: "\"NOPERM \"", New: "\"NEVER \"",
			Judge: Refusals, Killed: []string{"NOPERM"},
		},
		{
			Name: "a cluster is asked for several slots for ever", File: "internal/node/joint.go",
			Old: "n.apart.Store(true)", New: "n.apart.Load()",
			Judge: Refusals, Killed: []string{"CROSSSLOT"},
		},
		{
			Name: "a READONLY for one is overlooked", File: "internal/node/joint.go",
			Old: "answers, _ := reply.([]any)\n\tfor", New: "var answers []any\n\tfor",
			Judge: Refusals, Killed: []string{"READONLY_of_one"},
		},
		{
			Name: "a command of several goes through a proxy", File: "internal/node/joint.go",
			Old: " && !n.unordered.Load()", New: "",
			Judge: Proxies, Killed: []string{"CLIENT_INFO", "CLIENT_KILL"},
		},

		// The end.
		{
			Name: "whoever waits is told nothing of Close", File: "strategy/acquire.go",
			Old: "return nil, ErrClosed\n\t\t}\n\t}\n}\n\n// jitter", New: "return nil, errContext\n\t\t}\n\t}\n}\n\n// jitter",
			Judge: Memory, Killed: []string{"CloseEndsWaits"},
		},
		{
			Name: "what is closed still serves", File: "strategy/strategy.go",
			Old: "if h.closed {\n\t\treturn ErrClosed", New: "if false {\n\t\treturn ErrClosed",
			Judge: Memory, Killed: []string{"ClosedRefuses"},
		},
		{
			Name: "no deadline comes after Close", File: "strategy/keepalive.go",
			Old: "\t\th.lapse()\n", New: "",
			Judge: Memory, Killed: []string{"LossAfterClose"},
		},
	}
}
