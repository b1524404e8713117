package mutants

// Memory and ReentrantMemory judge the engine with a protocol in this process.
var (
	Memory          = Judge{Package: "./conformance", Test: "TestMemory/memory"}
	ReentrantMemory = Judge{Package: "./conformance", Test: "TestMemory/reentrant"}
)

// What the suite cannot judge, tests of the engine's own do.
var (
	HandedOver   = Judge{Package: "./engine", Test: "TestHandedOverLease", Own: true}
	HandOverEnds = Judge{Package: "./engine", Test: "TestHandOverEnds", Own: true}
	Successors   = Judge{Package: "./engine", Test: "TestSuccessorIsExtended", Own: true}
	Clocks       = Judge{Package: "./engine", Test: "TestClockOfAnotherServer", Own: true}
	Entries      = Judge{Package: "./engine", Test: "TestEntryIsInherited", Own: true}
	Split        = Judge{Package: "./engine", Test: "TestSplitVotes", Own: true}
	Several      = Judge{Package: "./engine", Test: "TestAll", Own: true}
	ErrorReply   = Judge{Package: "./driver", Test: "TestErrorReply", Own: true}
)

// engine are faults of packages strategy and engine. They are judged in memory.
func engine() []Mutant {
	const (
		acquire  = "engine/acquire.go"
		attempt  = "engine/attempt.go"
		handover = "engine/handover.go"
		lease    = "engine/lease.go"
		line     = "engine/line.go"
		renewal  = "engine/renewal.go"
	)
	return []Mutant{
		// Waiting.
		{acquire, "(*lock).acquire", always("l.lines.has"), Memory, "WaitersAreCheap"},
		{"engine/internal/waitline/waitline.go", "(*Line[W]).Join", instead("append(", "slices.Insert(l.waiters, min(1, len(l.waiters)), w)"), Memory, "FirstComeFirstServed"},
		{acquire, "(*waiter).listen", instead("true", "false").nth(2), Memory, "NoMissedRelease"},
		{acquire, "(*waiter).gaveUp", instead(`"%w; gave up`, `"%v; gave up after %v: %w"`), Memory, "WaitLimit CancelledWaiting"},
		{acquire, "(*waiter).gaveUp", instead("contextError(ctx)", "ctx.Err()").nth(2), Memory, "CancelledWaiting"},
		{acquire, "(*waiter).pauseLimit", skip("listening = false"), Split, "RandomPauses"},
		{attempt, "(*target).worthWaiting", never("RetryOnError"), Memory, "Persist"},
		{attempt, "(*target).refuse", never("ctx.Err()"), Memory, "CancelledBefore"},

		// The queue and the hand-over.
		{acquire, "(*waiter).listen", skip("distrustClock"), Clocks, "ahead"},
		{line, "(*line).settle", always("e.suits"), Entries, "next"},
		{handover, "(*line).successor", skip("g.Fence++"), HandedOver, "Extend"},
		{handover, "(*line).successor", never("handOverLimit"), HandOverEnds, "time"},
		{handover, "(*line).successor", never("g.Fences < 2"), HandOverEnds, "count"},
		{handover, "(*line).successor", instead("g.TTL / 2", "g.TTL"), HandOverEnds, "half_the_TTL"},
		{lease, "(*lease).take", never(`l.own != ""`), HandedOver, "Extend"},
		{lease, "(*lease).nextRenewal", always("!l.short"), Successors, "false"},

		// Leases.
		{attempt, "(*target).attempt", instead("newLease(", "newLease(t.c, c, g, end)"), Memory, "DeadlineFromRequest LateGrant"},
		{attempt, "(*target).attempt", never("end.Before"), Memory, "LateGrant"},
		{lease, "newLease", instead("g.Doubt", "false"), Undone, "OfALeaseThatLapsed"},
		{lease, "(*lease).finish", never("l.end != nil"), Memory, "ReleaseOnce"},
		{lease, "(*lease).over", always("lost").nth(1), Memory, "ReleaseIsNoLoss Detach"},
		{lease, "(*lease).over", instead("x.cancel(", "x.cancel(nil)"), Memory, "ContextEnds"},
		{lease, "(*lease).Detach", instead("c.Token", "c.Token[:0]"), Memory, "Detach"},
		{lease, "(*core).release", instead("context.WithoutCancel", "ctx"), Memory, "ReleaseDetached"},
		{"strategy/do.go", "do", instead("fn(held", "func() error { fn(held, lease); return nil }()"), Memory, "Do"},
		{"internal/token/token.go", "New", instead("id.String()", `"token"`).nth(1), Memory, "TokensUnique ExtendOnlyOwn"},
		{"internal/token/token.go", "New", instead("uuid.V7", "uuid.V4"), Memory, "Inspect"},

		// Renewal and loss.
		{lease, "(*lease).look", always("time.Now().Before"), Memory, "LossByDeadline"},
		{lease, "(*lease).plan", instead("l.watch", "l.watch && !l.renewing"), Memory, "LossWithoutNetwork"},
		{renewal, "(*lease).KeepAlive", instead("l.granted.Add", "l.granted.Add(10 * maxHold)"), Memory, "MaxHold"},
		{renewal, "(*lease).KeepAlive", never("maxHold < l.c.o.TTL"), Memory, "BadMaxHold"},
		{renewal, "(*shared).renewDue", skip("lapseDue"), Memory, "LossAfterClose"},

		// Owners.
		{line, "(*lines).join", never(`w.owner != ""`), ReentrantMemory, "ReentryBesideWaiters"},
		{acquire, "(*waiter).comeForward", skip("c.Again"), ReentrantMemory, "ReentryOvertakesNobody"},
		{lease, "(*lease).Context", instead("strategy.WithOwner", "parent"), ReentrantMemory, "ReentryByContext ReentryUnnamed"},
		{lease, "newLease", skip("l.claim.Owner = g.Owner"), ReentrantMemory, "ReentryAdopt"},

		// Names, options and errors.
		{"engine/engine.go", "(*engine).newLock", never("len(name) >"), Memory, "BadNames"},
		{"engine/options.go", "withDefaults", never("o.TTL%time.Millisecond"), Memory, "BadOptions"},
		{"strategy/options.go", "DefaultKey", never("'%'"), Memory, "OddNames"},
		{"driver/node.go", "ErrorReply", skip("kind = strategy.ErrUnknown"), ErrorReply, "Redis_6 Redis_7"},

		// The end.
		{acquire, "(*waiter).pause", instead("strategy.ErrClosed", "errContext"), Memory, "CloseEndsWaits"},
		{"engine/internal/lifecycle/lifecycle.go", "(*Group).Enter", never("g.closed"), Memory, "ClosedRefuses"},
	}
}

// several are faults of strategy.All.
func several() []Mutant {
	const file = "strategy/all.go"
	return []Mutant{
		{file, "All", instead("strings.Compare", "0"), Several, "Order"},
		{file, "All", instead("strings.Compare", "strings.Compare(a.Name(), b.Name())"), Several, "Order"},
		{file, "(*allLock).acquire", never("err != nil").nth(1), Several, "GivesBack OrNothing"},
		{file, "(*allLock).acquire", skip("part.KeepAlive"), Several, "BeginsAgain"},
		{file, "(*allLock).acquire", instead("inHand", "WithOwner(ctx, owner)").nth(1), Several, "BeginsAgain"},
		{file, "(*allLock).acquire", instead("WithOwner(ctx", "ctx"), Several, "Order Reentry"},
		{file, "(*allLock).acquire", never("time.Since(started)"), Several, "Wait"},
		{file, "(*allLease).Deadline", swap("MinFunc"), Several, "Order Failing"},
		{file, "(*allLease).Err", instead("l.partLost()", "(*AllError)(nil)"), Several, "ReleasedAlone"},
		{file, "(*allLease).KeepAlive", skip("bound +="), Several, "MaxHoldBegins"},
		{file, "(*allLease).Release", instead("errors.Is(end", "end != nil"), Several, "Loss ReleasedAlone"},
	}
}
