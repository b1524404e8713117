package mutants

// RedLock judges package redlock on five servers.
var RedLock = Judge{Package: "./redlock", Test: "TestConformance/redlock", Redis: true}

// Twins judges what redlock does about two names for one server: a mistake in how it
// is set up, which the suite cannot make for it.
var Twins = Judge{Package: "./redlock", Test: "TestTwins", Redis: true, Own: true}

// Minority judges what redlock makes of a minority's word, where that comes in time.
var Minority = Judge{Package: "./redlock", Test: "TestMinority", Redis: true, Own: true}

// Forgetful, GuardOpens, GuardHears, GuardKnows and GuardBegins judge the restart guard, which takes servers that
// forget.
var (
	GuardOpens = Judge{Package: "./redlock", Test: "TestGuardOpens", Redis: true, Own: true, Starts: true}
	Forgetful  = Judge{Package: "./redlock", Test: "TestForgetfulServer", Redis: true, Own: true, Starts: true}
	GuardHears = Judge{Package: "./redlock", Test: "TestGuardHears", Redis: true, Own: true, Starts: true}

	GuardKnows  = Judge{Package: "./redlock", Test: "TestGuardKnowsItsOwn", Redis: true, Own: true, Starts: true}
	GuardBegins = Judge{Package: "./redlock", Test: "TestGuardBegins", Redis: true, Own: true, Starts: true}
)

// ForgottenAdoption judges the guard's word about what is handed on.
var ForgottenAdoption = Judge{Package: "./redlock", Test: "TestForgottenAdoption", Redis: true, Own: true, Starts: true}

// Fences judges redlock's fences where the servers' clocks do not hide what they lack.
var Fences = Judge{Package: "./redlock", Test: "TestFences", Redis: true, Own: true, Starts: true}

// Join and Rejoin judge how a lock gets back to nodes that do not have it: on fake time,
// and on real servers.
var (
	Join   = Judge{Package: "./redlock", Test: "TestJoin", Own: true, Redis: true}
	Rejoin = Judge{Package: "./redlock", Test: "TestRejoin", Redis: true, Own: true, Starts: true}
)

// Undone judges, on fake time, for how long what may be left on a node is undone.
var Undone = Judge{Package: "./redlock", Test: "TestUndone", Own: true, Redis: true}

// Spare judges, on fake time, what a node costs that stands still after its vote.
var Spare = Judge{Package: "./redlock", Test: "TestSpare", Own: true, Redis: true}

// Split judges the wait of those who have split the votes, on fake time: the suite sees
// only that it ends.
var Split = Judge{Package: "./strategy", Test: "TestSplitVotes", Own: true}

// redLock are faults of package redlock. The first two live on in another library's own tests.
func redLock() []Mutant {
	return []Mutant{
		// The vote.
		{
			Name: "redlock takes one vote for a quorum", File: "redlock/setup.go",
			Old: "quorum: len(nodes)/2 + 1}", New: "quorum: min(len(nodes), 1)}",
			Judge: RedLock, Killed: []string{"QuorumNeeded", "MajorityDown", "Contention"},
		},
		{
			Name: "redlock does not look at the time that its votes took", File: "redlock/redlock.go",
			Old: "validity >= p.leastValidity(c.TTL)", New: "validity > -c.TTL",
			Judge: RedLock, Killed: []string{"SlowQuorum"},
		},
		{
			Name: "redlock is content with any validity", File: "redlock/redlock.go",
			Old: "validity >= p.leastValidity(c.TTL)", New: "validity > 0",
			Judge: RedLock, Killed: []string{"SlowQuorum"},
		},
		{
			Name: "half of the votes are a quorum", File: "redlock/setup.go",
			Old: "quorum: len(nodes)/2 + 1}", New: "quorum: len(nodes)/2}",
			Judge: RedLock, Killed: []string{"QuorumNeeded", "MajorityDown"},
		},
		{
			Name: "redlock asks one node after the other", File: "redlock/round.go",
			Old: "p.requests.Go(func() {", New: "func(ask func()) { ask() }(func() {",
			Judge: RedLock, Killed: []string{"OneRound", "HungNode"},
		},
		{
			Name: "redlock waits for every node", File: "redlock/count.go",
			Old: "vc.over = vc.pending == 0 || vc.enough(vc); vc.over {", New: "vc.over = vc.pending == 0; vc.over {",
			Judge: RedLock, Killed: []string{"HungNode"},
		},
		{
			Name: "redlock calls a lock held of which a minority says so", File: "redlock/errors.go",
			Old: "	if count.lost == 0 && count.yes+count.held >= p.quorum {", New: "	if count.lost == 0 && count.held > 0 {\n\t\te.Held = &strategy.HeldError{Name: c.Name}\n\t}\n\tif count.lost == 0 && count.yes+count.held >= p.quorum {",
			Judge: Minority, Killed: []string{"Held"},
		},
		{
			Name: "redlock counts one server's two votes", File: "redlock/acquire.lua",
			Old: "return 0\nend", New: "return 1\nend",
			Judge: Twins, Killed: []string{"Refused", "Late"},
		},
		{
			Name: "redlock forgets a twin that answered late", File: "redlock/redlock.go",
			Old: "			p.twin.Store(int64(i + 1))\n", New: "",
			Judge: Twins, Killed: []string{"Late"},
		},
		{
			Name: "acquire.lua, of redlock, takes the lock of another", File: "redlock/acquire.lua",
			Old: "if holder then", New: "if false then",
			Judge: RedLock, Killed: []string{"Exclusive", "Contention"},
		},

		// The restart guard.
		{
			Name: "redlock's guard refuses nobody", File: "redlock/vote.lua",
			Old: "if g.wait > 0 then", New: "if false then",
			Judge: Forgetful, Killed: []string{"Flushed", "Restarted", "OldAOF", "Promoted", "PromotedAgain"},
		},
		{
			Name: "redlock's guard is content to be there", File: "redlock/guard.lua",
			Old: "elseif run ~= actual or promoted ~= '' and past ~= promoted then", New: "elseif false then",
			Judge: Forgetful, Killed: []string{"OldAOF", "Promoted", "PromotedAgain"},
		},
		{
			Name: "redlock's guard knows a process by its run alone", File: "redlock/guard.lua",
			Old: " or promoted ~= '' and past ~= promoted then", New: " then",
			Judge: Forgetful, Killed: []string{"PromotedAgain"},
		},
		{
			Name: "redlock's guard takes a replica for its primary", File: "redlock/guard.lua",
			Old: "if not (primary and seen", New: "if not (seen",
			Judge: GuardKnows, Killed: []string{"NotItsPrimarys"},
		},
		{
			Name: "redlock's guard knows a process by its replicas", File: "redlock/guard.lua",
			Old: "    actual = info ~= ''", New: "    run = seen and '?'\n    actual = info ~= ''",
			Judge: GuardKnows, Killed: []string{"WithItsFirstReplica"},
		},
		{
			Name: "redlock's guard believes that it is the process it was", File: "redlock/guard.lua",
			Old: " and string.find(info, 'master_replid:' .. seen .. '\\r', 1, true)", New: " and info ~= ''",
			Judge: Forgetful, Killed: []string{"OldAOF", "Promoted", "PromotedAgain"},
		},
		{
			Name: "redlock's guard is open for another process", File: "redlock/fastpath.lua",
			Old: " and string.find(info, 'master_replid:' .. seen .. '\\r', 1, true)", New: "",
			Judge: Forgetful, Killed: []string{"OldAOF", "Promoted", "PromotedAgain"},
		},
		{
			Name: "redlock's guard is open for a replica", File: "redlock/fastpath.lua",
			Old: "string.find(info, 'role:master', 1, true) and ", New: "",
			Judge: GuardKnows, Killed: []string{"NotItsPrimarys"},
		},
		{
			Name: "fastpath.lua, of redlock, takes the lock of another", File: "redlock/fastpath.lua",
			Old: "not redis.call('GET', KEYS[1]) and", New: "true and",
			Judge: RedLock, Killed: []string{"Exclusive", "Contention"},
		},
		{
			Name: "redlock's guard is open whoever asks", File: "redlock/fastpath.lua",
			Old: "max == ARGV[3] and", New: "max and",
			Judge: GuardHears, Killed: []string{"AfterARestart"},
		},
		{
			Name: "redlock's guard is open before its time", File: "redlock/fastpath.lua",
			Old: "if votes and born ~= '0' then", New: "if false then",
			Judge: GuardOpens, Killed: []string{"AfterMaxTTL"},
		},
		{
			Name: "redlock's guard believes what it finds first", File: "redlock/guard.lua",
			Old: "if not run or not gen or not g.born then", New: "if not run or not gen or not g.born then g.born = 0 elseif false then",
			Judge: Forgetful, Killed: []string{"Flushed", "Restarted"},
		},
		{
			Name: "redlock's guard waits for the TTL of whoever asks", File: "redlock/guard.lua",
			Old: "g.max = math.max(stored, tonumber(longest))", New: "g.max = tonumber(longest)",
			Judge: GuardHears, Killed: []string{"Later", "AfterARestart"},
		},
		{
			Name: "redlock does not mind its MaxTTL", File: "redlock/guard.go",
			Old: "		p.hear(p.maxTTL.Milliseconds())\n", New: "",
			Judge: GuardOpens, Killed: []string{"AfterMaxTTL"},
		},
		{
			Name: "redlock's guard never opens", File: "redlock/guard.lua",
			Old: "g.wait = g.born + g.max - now", New: "g.wait = g.max",
			Judge: GuardOpens, Killed: []string{"AfterMaxTTL"},
		},
		{
			Name: "redlock minds no longer TTL than its own", File: "redlock/guard.go",
			Old: "if ms <= known || p.known", New: "if known > 0 || p.known",
			Judge: GuardHears, Killed: []string{"OfAGrant", "OfARefusal"},
		},
		{
			Name: "redlock's guard knows no longer TTL than the first", File: "redlock/guard.lua",
			Old: "g.wait = g.born + g.max - now", New: "g.wait = g.born + (g.fresh and g.max or stored) - now",
			Judge: GuardHears, Killed: []string{"Later"},
		},

		{
			Name: "redlock's guard sleeps while the lock is held", File: "redlock/acquire.lua",
			Old: "    pcall(keep, KEYS[2], g)", New: "    --",
			Judge: GuardBegins, Killed: []string{"WhileHeld"},
		},
		{
			Name: "redlock's guard has no say in what is handed on", File: "redlock/adopt.lua",
			Old: "return vote(ARGV[3],", New: "redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])\ndo return 1 end\nreturn vote(ARGV[3],",
			Judge: ForgottenAdoption, Killed: []string{"Refused"},
		},

		// Fences.
		{
			Name: "redlock issues fences in one phase", File: "redlock/fence.go",
			Old: "	due := p.due(c)\n", New: "	if fence > 0 {\n\t\treturn fence, nil\n\t}\n\tdue := p.due(c)\n",
			Judge: Fences, Killed: []string{"WrittenBack", "WhileItIsThere", "InOneMemory", "InTime"},
		},
		{
			Name: "redlock is content with one who has noted the fence", File: "redlock/fence.go",
			Old: "if noted.yes < p.quorum {", New: "if noted.yes < 1 {",
			Judge: Fences, Killed: []string{"WhileItIsThere"},
		},
		{
			Name: "redlock takes the fence of one node", File: "redlock/fence.go",
			Old: "		fence = max(fence,", New: "		if fence > 0 {\n\t\t\tsaid[i].last, said[i].now = 0, 0\n\t\t}\n\t\tfence = max(fence,",
			Judge: Fences, Killed: []string{"WrittenBack"},
		},
		{
			Name: "redlock does not wait for those who remember", File: "redlock/fence.go",
			Old: "return n >= vc.quorum || n+vc.pending < vc.quorum", New: "return n >= 0",
			Judge: Fences, Killed: []string{"Remembered"},
		},
		{
			Name: "a lost counter, of redlock, counts as none", File: "redlock/vote.lua",
			Old: "local remembers = gen == g.gen or not gen and g.new", New: "local remembers = true",
			Judge: Fences, Killed: []string{"Remembered"},
		},
		{
			Name: "a node that forgot, of redlock, counts before it is healed", File: "redlock/fence.go",
			Old: "if len(asked) < p.quorum {", New: "if true {",
			Judge: Fences, Killed: []string{"Forgotten"},
		},
		{
			Name: "a lost counter, of redlock, stays lost", File: "redlock/writeback.lua",
			Old: ", 'gen', g.gen)", New: ")",
			Judge: Fences, Killed: []string{"Remembered"},
		},
		{
			Name: "writeback.lua, of redlock, does not compare", File: "redlock/writeback.lua",
			Old: "if holder ~= ARGV[1] then", New: "if false then",
			Judge: Fences, Killed: []string{"WhileItIsThere"},
		},
		{
			Name: "writeback.lua, of redlock, notes what another generation granted", File: "redlock/writeback.lua",
			Old: "if g.gen ~= ARGV[3] then", New: "if false then",
			Judge: Fences, Killed: []string{"InOneMemory"},
		},
		{
			Name: "redlock does not look at the time that its fence took", File: "redlock/redlock.go",
			Old: "if fence, err = p.number(ctx, c, votes, count, said); err == nil {", New: "if fence, err = p.number(ctx, c, votes, count, said); false {",
			Judge: Fences, Killed: []string{"InTime"},
		},

		{
			Name: "redlock forgets who did not grant when a number fails", File: "redlock/fence.go",
			Old: "				noted.errs[i] = err\n", New: "				_ = i\n",
			Judge: Fences, Killed: []string{"Reasons", "WhileItIsThere"},
		},
		{
			Name: "redlock says not sent of what a minority has extended", File: "redlock/redlock.go",
			Old: "p.changed(p.refusal(c, count), votes.holding(), \"extended, if it got so far, but too few others were\")", New: "p.refusal(c, count)",
			Judge: Minority, Killed: []string{"Extended"},
		},

		// Joining.
		{
			Name: "redlock leaves those out that do not have the lock", File: "redlock/redlock.go",
			Old: "	p.rejoin(count.ctx, c, votes, start)\n", New: "",
			Judge: Join, Killed: []string{"Survives", "LateIsUndone"},
		},
		{
			Name: "redlock leaves those out that tell late that they do not have the lock", File: "redlock/redlock.go",
			Old: "			p.join(ctx, c, votes, i, start)\n", New: "",
			Judge: Join, Killed: []string{"LateAnswer"},
		},
		{
			Name: "redlock lets nodes join what no majority has", File: "redlock/redlock.go",
			Old: "	if count.yes < p.quorum {\n		// A minority may", New: "	p.rejoin(count.ctx, c, votes, start)\n	if count.yes < p.quorum {\n		// A minority may",
			Judge: Join, Killed: []string{"OnlyWithAQuorum"},
		},
		{
			Name: "redlock forgets whom it has asked to join", File: "redlock/join.go",
			Old: "	v.standing = unknown\n", New: "",
			Judge: Join, Killed: []string{"LateIsUndone", "LateIsUndoneUnordered"},
		},
		{
			Name: "join.lua, of redlock, takes the lock of another", File: "redlock/join.lua",
			Old: "if holder then", New: "if false then",
			Judge: Rejoin, Killed: []string{"LeavesOthers"},
		},
		{
			Name: "join.lua, of redlock, does not tell the guard", File: "redlock/join.lua",
			Old: "  keep(KEYS[2], g)\n", New: "",
			Judge: Rejoin, Killed: []string{"TellsTheGuard"},
		},

		// What votes leave behind.
		{
			Name: "redlock takes an extension without an answer for none", File: "redlock/votes.go",
			Old: "	v.until = v.until.Add(ttl + driver.Drift(ttl))\n	return otherwise", New: "	return otherwise",
			Judge: Undone, Killed: []string{"OfALostExtension"},
		},
		{
			Name: "a lease that lapses leaves late votes alone", File: "strategy/lease.go",
			Old: "l.deadline, l.doubt = l.claim.Grant.deadline(), g.Doubt", New: "l.deadline = l.claim.Grant.deadline()",
			Judge: Undone, Killed: []string{"OfALeaseThatLapsed"},
		},
		{
			Name: "redlock gives a lost lock back before its holder knows", File: "redlock/redlock.go",
			Old: "		// A minority may have extended it.", New: "		p.deleteAll(context.WithoutCancel(ctx), c, votes, p.due(c), channel(c)) //",
			Judge: Undone, Killed: []string{"OfALostLease"},
		},
		{
			Name: "redlock tells nobody of what may come", File: "redlock/redlock.go",
			Old: "	err = p.changed(p.advised(err), votes.holding(), \"perhaps granted, and not yet given back\")\n	return driver.Grant{State: votes}, remains(left, err)", New: "	_ = left\n	return driver.Grant{State: votes}, p.advised(err)",
			Judge: Undone, Killed: []string{"OfAnAttemptWithoutVotes"},
		},
		{
			Name: "redlock has a fence noted by those alone who voted first", File: "redlock/redlock.go",
			Old: "		count.await(p.patience(), p.expected)", New: "		_ = count.await",
			Judge: Spare, Killed: []string{"FrozenAfterItsVote"},
		},
		{
			Name: "redlock counts for a node that is silent", File: "redlock/votes.go",
			Old: "	if len(still) > 0 {\n		return driver.Remains(errors.Join(still...))\n	}\n	return errors.Join(answered...)", New: "	return errors.Join(append(answered, still...)...)",
			Judge: Undone, Killed: []string{"OfALateVote"},
		},
		{
			Name: "redlock keeps the votes of an attempt that failed", File: "redlock/redlock.go",
			Old: "	p.deleteAll(context.WithoutCancel(ctx), c, votes, p.due(c), to)\n	left := votes.mayHold()", New: "	left := 0 * len(to)",
			Judge: RedLock, Killed: []string{"FailedAttemptLeavesNothing", "EvenSplit"},
		},
		{
			Name: "redlock takes a vote without an answer for none", File: "redlock/redlock.go",
			Old: "		case certain(err):", New: "		default:",
			Judge: RedLock, Killed: []string{"ReleaseEverywhere"},
		},
		{
			Name: "redlock releases the votes that it needed, and no others", File: "redlock/redlock.go",
			Old: "	return driver.Grant{Start: start, TTL: c.TTL, Fence: fence, Doubt: count.yes < len(p.nodes), State: votes}, nil", New: "	needed := newVotes(len(p.nodes), absent)\n\tfor i, err := range count.errs {\n\t\tif err == nil {\n\t\t\tneeded.granted(i, c.TTL)\n\t\t}\n\t}\n\treturn driver.Grant{Start: start, TTL: c.TTL, Fence: fence, State: needed}, nil",
			Judge: RedLock, Killed: []string{"LateGrantUndone", "ReleaseEverywhere"},
		},
		{
			Name: "redlock undoes once, whatever comes of it", File: "redlock/redlock.go",
			Old: "case c.Undo && left == 0:", New: "case c.Undo:",
			Judge: RedLock, Killed: []string{"LateGrantUndone"},
		},
		{
			Name: "release.lua, of redlock, does not compare", File: "redlock/release.lua",
			Old: "if holder ~= ARGV[1] then", New: "if not holder then",
			Judge: RedLock, Killed: []string{"ReleaseOnlyOwn", "ReleaseAtomic", "ForceRelease"},
		},

		// Extension.
		{
			Name: "redlock takes no answer for an extension", File: "redlock/redlock.go",
			Old: "	switch {\n\tcase err != nil:\n\t\treturn err\n\tcase reply == int64(1): // extended\n\t\tvotes.granted(i, c.TTL)", New: "	switch {\n\tcase err != nil:\n\t\treturn nil\n\tcase reply == int64(1):\n\t\tvotes.granted(i, c.TTL)",
			Judge: RedLock, Killed: []string{"MajorityDown"},
		},
		{
			Name: "redlock calls a lock lost that no node has, and no other", File: "redlock/errors.go",
			Old: "	if count.lost > len(p.nodes)-p.quorum {\n\t\treturn", New: "	if count.lost == len(p.nodes) {\n\t\treturn",
			Judge: RedLock, Killed: []string{"MajorityForgets"},
		},
		{
			Name: "redlock calls a lock lost of which a minority says so", File: "redlock/errors.go",
			Old: "	if count.lost > len(p.nodes)-p.quorum {\n\t\treturn", New: "	if count.lost > 0 {\n\t\treturn",
			Judge: Minority, Killed: []string{"Lost"},
		},
		{
			Name: "redlock extends only what all nodes keep", File: "redlock/redlock.go",
			Old: "	if count.yes < p.quorum {\n		// A minority may", New: "	if count.yes < len(p.nodes) {\n		// A minority may",
			Judge: RedLock, Killed: []string{"MinorityDown", "MinorityForgets"},
		},
		{
			Name: "extend.lua, of redlock, makes the lock anew", File: "redlock/extend.lua",
			Old: "if holder ~= ARGV[1] then", New: "if not holder then redis.call('SET', KEYS[1], ARGV[1]) elseif holder ~= ARGV[1] then",
			Judge: RedLock, Killed: []string{"ExtendNeverRecreates"},
		},
		{
			Name: "adopt.lua, of redlock, keeps the token", File: "redlock/adopt.lua",
			Old: "return vote(ARGV[3],", New: "return vote(ARGV[1],",
			Judge: RedLock, Killed: []string{"AdoptOnce"},
		},

		// Waiting.
		{
			Name: "release.lua, of redlock, tells nobody", File: "redlock/release.lua",
			Old: "redis.pcall('PUBLISH', ARGV[2], ARGV[1])", New: "",
			Judge: RedLock, Killed: []string{"WokenByNotice", "WokenByMajority"},
		},
		{
			Name: "redlock listens to the first majority", File: "redlock/watch.go",
			Old: "for i, n := range p.nodes {", New: "for i, n := range p.nodes[:p.quorum] {",
			Judge: RedLock, Killed: []string{"WokenByMajority"},
		},
		{
			Name: "who has split the votes sleeps until they expire", File: "strategy/acquire.go",
			Old: "		told = false\n", New: "		told = true\n",
			Judge: Split, Killed: []string{"RandomPauses"},
		},
	}
}
