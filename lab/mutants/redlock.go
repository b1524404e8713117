package mutants

// RedLock judges package redlock on five servers.
var RedLock = Judge{Package: "./redlock", Test: "TestConformance/redlock", Redis: true}

// What the suite cannot judge.
var (
	// Twins judges two names for one server: a mistake in how it is set up.
	Twins = Judge{Package: "./redlock", Test: "TestTwins", Redis: true, Own: true}
	// Minority judges what redlock makes of a minority's word, if that comes in time.
	Minority = Judge{Package: "./redlock", Test: "TestMinority", Redis: true, Own: true}

	// The restart guard takes servers that forget.
	GuardOpens        = Judge{Package: "./redlock", Test: "TestGuardOpens", Redis: true, Own: true, Starts: true}
	GuardHears        = Judge{Package: "./redlock", Test: "TestGuardHears", Redis: true, Own: true, Starts: true}
	GuardKnows        = Judge{Package: "./redlock", Test: "TestGuardKnowsItsOwn", Redis: true, Own: true, Starts: true}
	GuardBegins       = Judge{Package: "./redlock", Test: "TestGuardBegins", Redis: true, Own: true, Starts: true}
	Forgetful         = Judge{Package: "./redlock", Test: "TestForgetfulServer", Redis: true, Own: true, Starts: true}
	ForgottenAdoption = Judge{Package: "./redlock", Test: "TestForgottenAdoption", Redis: true, Own: true, Starts: true}

	// Fences judges fences where the servers' clocks do not hide what they lack.
	Fences = Judge{Package: "./redlock", Test: "TestFences", Redis: true, Own: true, Starts: true}

	// Join and Rejoin judge how a lock gets back to nodes that do not have it: on fake time, and on
	// real servers.
	Join   = Judge{Package: "./redlock", Test: "TestJoin", Own: true, Redis: true}
	Rejoin = Judge{Package: "./redlock", Test: "TestRejoin", Redis: true, Own: true, Starts: true}
	// Undone judges, on fake time, for how long what may be left on a node is undone; Spare what a node
	// costs that stands still after its vote.
	Undone = Judge{Package: "./redlock", Test: "TestUndone", Own: true, Redis: true}
	Spare  = Judge{Package: "./redlock", Test: "TestSpare", Own: true, Redis: true}
)

// redLock are faults of package redlock. The first two live on in another library's own tests.
func redLock() []Mutant {
	const (
		main   = "redlock/redlock.go"
		setup  = "redlock/setup.go"
		errs   = "redlock/errors.go"
		fence  = "redlock/fence.go"
		fast   = "redlock/fastpath.lua"
		guard  = "redlock/guard.lua"
		writes = "redlock/writeback.lua"
	)
	return []Mutant{
		// The vote.
		{setup, "On", instead("len(nodes)/2", "min(len(nodes), 1)"), RedLock, "QuorumNeeded MajorityDown Contention"},
		{main, "(*protocol).inTime", always("p.leastValidity"), RedLock, "SlowQuorum"},
		{main, "(*protocol).inTime", instead("p.leastValidity", "validity > 0"), RedLock, "SlowQuorum"},
		{setup, "On", instead("len(nodes)/2", "len(nodes)/2"), RedLock, "QuorumNeeded MajorityDown"},
		// It asks one node after the other.
		{"redlock/round.go", "(*protocol).ask", instead("votes.tryTurn", "func() bool { p.requests.Wait(); return votes.tryTurn(i) }()"), RedLock, "OneRound HungNode"},
		{"redlock/count.go", "(*voteCount).endIfEnough", never("vc.enough"), RedLock, "HungNode"},
		// A lock counts as held if a minority says so.
		{errs, "(*protocol).refusal", instead("count.yes+count.held >= p.quorum", "count.held > 0"), Minority, "Held"},
		{"redlock/acquire.lua", "", instead("0", "1").nth(1), Twins, "Refused Late"},
		{main, "(*protocol).collect", skip("p.twin.Store"), Twins, "Late"},
		{"redlock/acquire.lua", "", never("holder").nth(3), RedLock, "Exclusive Contention"},
		{fast, "", never("redis.call('GET', KEYS[1])"), RedLock, "Exclusive Contention"},

		// The restart guard.
		{"redlock/vote.lua", "vote", never("g.wait > 0"), Forgetful, "Flushed Restarted OldAOF Promoted PromotedAgain"},
		{guard, "guard", instead("run ~= actual or promoted ~= '' and past ~= promoted", "false"), Forgetful, "OldAOF Promoted PromotedAgain"},
		{guard, "guard", never("past ~= promoted"), Forgetful, "PromotedAgain"},
		{guard, "guard", always("primary").nth(2), GuardKnows, "NotItsPrimarys"},
		// It knows a process by its replicas.
		{guard, "guard", instead("run ~= actual", "seen ~= id"), GuardKnows, "WithItsFirstReplica"},
		{guard, "guard", always("string.find(info, 'master_replid:'"), Forgetful, "OldAOF Promoted PromotedAgain"},
		{fast, "", always("string.find(info, 'master_replid:'"), Forgetful, "OldAOF Promoted PromotedAgain"},
		{fast, "", always("string.find(info, 'role:master'"), GuardKnows, "NotItsPrimarys"},
		{fast, "", always("max == ARGV[3]"), GuardHears, "AfterARestart"},
		{fast, "", never("born ~= '0'"), GuardOpens, "AfterMaxTTL"},
		// It believes what it finds first.
		{guard, "guard", instead("g.born + g.max", "run and gen and g.born + g.max - now or 0"), Forgetful, "Flushed Restarted"},
		{guard, "guard", instead("math.max(stored", "tonumber(longest)"), GuardHears, "Later AfterARestart"},
		{"redlock/guard.go", "(*protocol).longest", skip("p.learnTTL(p.maxTTL"), GuardOpens, "AfterMaxTTL"},
		{guard, "guard", instead("g.born + g.max", "g.max"), GuardOpens, "AfterMaxTTL"},
		{"redlock/guard.go", "(*protocol).learnTTL", instead("ms <= known", "known > 0"), GuardHears, "OfAGrant OfARefusal"},
		{guard, "guard", instead("g.born + g.max", "g.born + (g.fresh and g.max or stored) - now"), GuardHears, "Later"},
		{"redlock/acquire.lua", "", skip("pcall(keep"), GuardBegins, "WhileHeld"},
		{"redlock/adopt.lua", "", instead("vote(", "redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2]) and 1"), ForgottenAdoption, "Refused"},

		// Fences.
		// In one phase.
		{fence, "(*protocol).issueFence", instead("votes.hasten()", "return fence, nil"), Fences, "WrittenBack WhileItIsThere InOneMemory InTime"},
		{fence, "(*protocol).issueFence", instead("noted.yes < p.quorum", "noted.yes < 1"), Fences, "WhileItIsThere"},
		{fence, "(*protocol).issueFence", instead("max(fence", "uint64(said[i].last) + 1"), Fences, "WrittenBack"},
		{fence, "(*voteCount).remembered", always("n >= vc.quorum"), Fences, "Remembered"},
		{"redlock/vote.lua", "vote", always("gen == g.gen"), Fences, "Remembered"},
		{fence, "(*protocol).issueFence", always("len(asked) < p.quorum"), Fences, "Forgotten"},
		{writes, "", omit("'gen', g.gen"), Fences, "Remembered"},
		{writes, "", never("holder ~= ARGV[1]"), Fences, "WhileItIsThere"},
		{writes, "", never("g.gen ~= ARGV[3]"), Fences, "InOneMemory"},
		{main, "(*protocol).elect", skip("err = p.inTime"), Fences, "InTime"},
		{fence, "(*protocol).issueFence", skip("noted.errs[i] = err"), Fences, "Reasons WhileItIsThere"},
		{fence, "(*protocol).enoughForFence", always("!vc.awaits"), Spare, "FrozenAfterItsVote"},

		// Joining.
		{main, "(*protocol).Extend", skip("p.rejoin"), Join, "Survives LateIsUndone"},
		{main, "(*protocol).Extend", skip("p.join("), Join, "LateAnswer"},
		// Nodes join what no majority has.
		{main, "(*protocol).Extend", instead("remains(", "func() error { p.rejoin(count.ctx, c, votes, start); return remains(votes.mayHold(), p.refusal(c, count)) }()"), Join, "OnlyWithAQuorum"},
		{"redlock/join.go", "(*nodeVotes).joins", skip("v.standing = unknown"), Join, "LateIsUndone LateIsUndoneUnordered"},
		{"redlock/join.lua", "", never("holder").nth(2), Rejoin, "LeavesOthers"},
		{"redlock/join.lua", "", skip("keep("), Rejoin, "TellsTheGuard"},

		// What votes leave behind.
		{"redlock/votes.go", "(*nodeVotes).extending", skip("v.until = v.until.Add"), Undone, "OfALostExtension"},
		// A lost lock is given back before its holder knows.
		{main, "(*protocol).Extend", instead("remains(", "func() error { p.deleteAll(context.WithoutCancel(ctx), c, votes, p.due(c), channel(c)); return p.refusal(c, count) }()"), Undone, "OfALostLease"},
		{main, "(*protocol).giveBack", instead("p.markUnknown(", "func() error { left = 0; return p.advised(err) }()"), Undone, "OfAnAttemptWithoutVotes"},
		{main, "(*protocol).giveBack", instead("left", "0*left"), Undone, "OfALateQuorum"},
		{"redlock/votes.go", "(*nodeVotes).undone", never("len(still) > 0"), Undone, "OfALateVote"},
		// The votes of an attempt that failed stay.
		{main, "(*protocol).giveBack", instead("p.deleteAll(", "_ = to; return driver.Grant{State: votes}, err"), RedLock, "FailedAttemptLeavesNothing EvenSplit"},
		{main, "(*protocol).collect", always("certain(err)"), RedLock, "ReleaseEverywhere"},
		// It releases the votes that it needed, and no others.
		{main, "(*protocol).elect", instead("driver.Grant{Start", `func() driver.Grant {
			needed := newVotes(len(p.nodes), absent)
			for i, err := range count.errs {
				if err == nil {
					needed.granted(i, c.TTL)
				}
			}
			return driver.Grant{Start: start, TTL: c.TTL, Fence: fence, State: needed}
		}()`), RedLock, "LateGrantUndone ReleaseEverywhere"},
		{main, "(*protocol).Release", always("left == 0"), RedLock, "LateGrantUndone"},
		{"redlock/release.lua", "", never("holder ~= ARGV[1]"), RedLock, "ReleaseOnlyOwn ReleaseAtomic ForceRelease"},

		// Extension.
		// It counts a request without an answer as an extension.
		{main, "(*protocol).extendOn", instead("err", "nil").nth(4), RedLock, "MajorityDown"},
		{main, "(*protocol).Extend", instead("p.markUnknown(", "p.refusal(c, count)"), Minority, "Extended"},
		{errs, "(*protocol).refusal", instead("count.lost > len(p.nodes)-p.quorum", "count.lost == len(p.nodes)"), RedLock, "MajorityForgets"},
		{errs, "(*protocol).refusal", instead("count.lost > len(p.nodes)-p.quorum", "count.lost > 0"), Minority, "Lost"},
		{main, "(*protocol).Extend", instead("count.yes < p.quorum", "count.yes < len(p.nodes)"), RedLock, "MinorityDown MinorityForgets"},
		// A lock that is gone is made again.
		{"redlock/extend.lua", "", instead("holder ~= ARGV[1]", "not (holder == ARGV[1] or not holder and redis.call('SET', KEYS[1], ARGV[1]))"), RedLock, "ExtendNeverRecreates"},
		{"redlock/adopt.lua", "", instead("ARGV[3]", "ARGV[1]").nth(2), RedLock, "AdoptOnce"},

		// Waiting.
		{"redlock/release.lua", "", skip("redis.pcall('PUBLISH'"), RedLock, "WokenByNotification WokenByMajority"},
		{"redlock/watch.go", "(*protocol).Watch", instead("p.nodes", "p.nodes[:p.quorum]").nth(2), RedLock, "WokenByMajority"},
	}
}
