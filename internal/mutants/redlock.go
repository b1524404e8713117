package mutants

// RedLock judges package redlock on five servers.
var RedLock = Judge{Package: "./redlock", Test: "TestConformance/redlock", Redis: true}

// Twins judges what redlock does about two names for one server: a mistake in how it
// is set up, which the suite cannot make for it.
var Twins = Judge{Package: "./redlock", Test: "TestTwins", Redis: true, Own: true}

// Minority judges what redlock makes of a minority's word, where that comes in time.
var Minority = Judge{Package: "./redlock", Test: "TestMinority", Redis: true, Own: true}

// Split judges the wait of those who have split the votes, on fake time: the suite sees
// only that it ends.
var Split = Judge{Package: "./strategy", Test: "TestSplitVotes", Own: true}

// redLock are faults of package redlock. The first two live on in another library's own tests.
func redLock() []Mutant {
	return []Mutant{
		// The vote.
		{
			Name: "redlock takes one vote for a quorum", File: "redlock/redlock.go",
			Old: "quorum: len(nodes)/2 + 1}", New: "quorum: min(len(nodes), 1)}",
			Judge: RedLock, Killed: []string{"QuorumNeeded", "MajorityDown", "Contention"},
		},
		{
			Name: "redlock does not look at the time that its votes took", File: "redlock/redlock.go",
			Old: "validity >= p.least(c.TTL)", New: "validity > -c.TTL",
			Judge: RedLock, Killed: []string{"SlowQuorum"},
		},
		{
			Name: "redlock is content with any validity", File: "redlock/redlock.go",
			Old: "validity >= p.least(c.TTL)", New: "validity > 0",
			Judge: RedLock, Killed: []string{"SlowQuorum"},
		},
		{
			Name: "half of the votes are a quorum", File: "redlock/redlock.go",
			Old: "quorum: len(nodes)/2 + 1}", New: "quorum: len(nodes)/2}",
			Judge: RedLock, Killed: []string{"QuorumNeeded", "MajorityDown"},
		},
		{
			Name: "redlock asks one node after the other", File: "redlock/ballot.go",
			Old: "p.requests.Go(func() {", New: "func(ask func()) { ask() }(func() {",
			Judge: RedLock, Killed: []string{"OneRound", "HungNode"},
		},
		{
			Name: "redlock waits for every node", File: "redlock/ballot.go",
			Old: "for t.pending > 0 && !enough(t) {", New: "for t.pending > 0 {",
			Judge: RedLock, Killed: []string{"HungNode"},
		},
		{
			Name: "redlock calls a lock held of which a minority says so", File: "redlock/redlock.go",
			Old: "	if t.lost == 0 && t.yes+t.held >= p.quorum {", New: "	if t.lost == 0 && t.held > 0 {\n\t\te.Held = &strategy.HeldError{Name: c.Name}\n\t}\n\tif t.lost == 0 && t.yes+t.held >= p.quorum {",
			Judge: Minority, Killed: []string{"Held"},
		},
		{
			Name: "redlock counts one server's two votes", File: "redlock/acquire.lua",
			Old: "return 0", New: "return 1",
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

		// What votes leave behind.
		{
			Name: "redlock keeps the votes of an attempt that failed", File: "redlock/redlock.go",
			Old: "left := p.giveBack(ctx, c, b)", New: "left := 0",
			Judge: RedLock, Killed: []string{"FailedAttemptLeavesNothing", "EvenSplit"},
		},
		{
			Name: "redlock takes a vote without an answer for none", File: "redlock/redlock.go",
			Old: "		case certain(err):", New: "		default:",
			Judge: RedLock, Killed: []string{"ReleaseEverywhere"},
		},
		{
			Name: "redlock releases the votes that it needed, and no others", File: "redlock/redlock.go",
			Old: "		return strategy.Grant{Start: start, TTL: c.TTL, State: b}, nil\n\t}\n\tleft", New: "		d := newBallot(len(p.nodes), absent)\n\t\tfor i, err := range t.errs {\n\t\t\tif err == nil {\n\t\t\t\td.grant(i, c.TTL)\n\t\t\t}\n\t\t}\n\t\treturn strategy.Grant{Start: start, TTL: c.TTL, State: d}, nil\n\t}\n\tleft",
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
			Old: "		switch {\n\t\tcase err != nil:\n\t\t\treturn err\n\t\tcase reply == int64(1):\n\t\t\tb.grant(i, c.TTL)", New: "		switch {\n\t\tcase err != nil:\n\t\t\treturn nil\n\t\tcase reply == int64(1):\n\t\t\tb.grant(i, c.TTL)",
			Judge: RedLock, Killed: []string{"MajorityDown"},
		},
		{
			Name: "redlock calls a lock lost that no node has, and no other", File: "redlock/redlock.go",
			Old: "	if t.lost > len(p.nodes)-p.quorum {\n\t\treturn", New: "	if t.lost == len(p.nodes) {\n\t\treturn",
			Judge: RedLock, Killed: []string{"MajorityForgets"},
		},
		{
			Name: "redlock calls a lock lost of which a minority says so", File: "redlock/redlock.go",
			Old: "	if t.lost > len(p.nodes)-p.quorum {\n\t\treturn", New: "	if t.lost > 0 {\n\t\treturn",
			Judge: Minority, Killed: []string{"Lost"},
		},
		{
			Name: "redlock extends only what all nodes keep", File: "redlock/redlock.go",
			Old: "	case t.yes >= p.quorum:\n\t\treturn strategy.Grant{Start: start,", New: "	case t.yes == len(p.nodes):\n\t\treturn strategy.Grant{Start: start,",
			Judge: RedLock, Killed: []string{"MinorityDown", "MinorityForgets"},
		},
		{
			Name: "extend.lua, of redlock, makes the lock anew", File: "redlock/extend.lua",
			Old: "if holder ~= ARGV[1] then", New: "if not holder then redis.call('SET', KEYS[1], ARGV[1]) elseif holder ~= ARGV[1] then",
			Judge: RedLock, Killed: []string{"ExtendNeverRecreates"},
		},
		{
			Name: "adopt.lua, of redlock, keeps the token", File: "redlock/adopt.lua",
			Old: "redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])", New: "redis.call('PEXPIRE', KEYS[1], ARGV[2])",
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
