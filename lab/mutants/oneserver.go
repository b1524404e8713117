package mutants

// Judges of the algorithms on one server; the two of setnxgetset are for its two ways to take over.
var (
	SetNXGetSet      = Judge{Package: "./setnxgetset", Test: "TestConformance/setnxgetset", Redis: true}
	SetNXGetSetWatch = Judge{Package: "./setnxgetset", Test: "TestConformance/setnxgetset-watch", Redis: true}
	SetNXPX          = Judge{Package: "./setnxpx", Test: "TestConformance/setnxpx", Redis: true}
	LuaScript        = Judge{Package: "./luascript", Test: "TestConformance/luascript", Redis: true}
	Reentrant        = Judge{Package: "./reentrant", Test: "TestConformance/reentrant", Redis: true}
)

// What the suite cannot judge.
var (
	// ForeignHolder and Quiet judge how luascript's waiters wait.
	ForeignHolder = Judge{Package: "./luascript", Test: "TestForeignHolder", Redis: true, Own: true}
	Quiet         = Judge{Package: "./luascript", Test: "TestQuietAmongItsOwn", Redis: true, Own: true}

	// NoLock judges what the suite cannot write, as it does not know the form of a lock.
	NoLock = Judge{Package: "./reentrant", Test: "TestNoLock", Redis: true, Own: true}

	// StoodStill judges a script of which a server has executed half, and then stood still for a TTL.
	StoodStill = Judge{Package: "./reentrant", Test: "TestStoodStill", Redis: true, Own: true}
)

func setNXGetSet() []Mutant {
	const algorithm, stamp, more = "setnxgetset/setnxgetset.go", "setnxgetset/stamp.go", "setnxgetset/capabilities.go"
	return []Mutant{
		{algorithm, "(*protocol).takeOver", always("old.lapsed()"), SetNXGetSet, "TakeOverRace"},
		{algorithm, "(*protocol).takeOver", instead("old.gone || old.lapsed()", "!old.gone && old.lapsed()"), SetNXGetSet, "NoGhost"},
		{algorithm, "(*protocol).Acquire", never("!seen.lapsed()"), SetNXGetSet, "FailedTryChangesNothing"},
		{stamp, "(*protocol).read", instead("s.until > now", "s.until < now"), SetNXGetSet, "Exclusive"},
		{stamp, "(*protocol).read", instead("p.refused(", "nil"), SetNXGetSet, "WrongType"},
		{stamp, "(*protocol).value", instead("ttl", "ttl / 4"), SetNXGetSet, "DeadlineIsSafe"},
		{stamp, "stamp.lapsed", swap("s.left <= 0"), SetNXGetSet, "TakeOverRace"},
		{stamp, "stamp.ownedBy", never("s.token != token").nth(2), SetNXGetSet, "ReleaseOnlyOwn ExtendOnlyOwn AdoptOnlyHeld ForceRelease"},
		{more, "(*protocol).Adopt", instead("c.Token", "from"), SetNXGetSet, "AdoptOnce"},
		{algorithm, "(*protocol).Extend", never("err != nil"), SetNXGetSetWatch, "ExtendOnlyOwn"},
		{algorithm, "(*protocol).inOneStep", instead(`p.expect(conn, "OK", "WATCH"`, `p.expect(conn, "PONG", "PING")`), SetNXGetSetWatch, "TakeOverRace LoserChangesNothing ReleaseAtomic ExtendAtomic"},
		// It takes an aborted EXEC for done.
		{algorithm, "(*protocol).inOneStep", instead(`conn.Do("EXEC")`, `func() (any, error) {
			reply, err := conn.Do("EXEC")
			if reply == nil && err == nil {
				reply = []any{[]byte("OK")}
			}
			return reply, err
		}()`), SetNXGetSetWatch, "TakeOverRace ExtendAtomic"},
		// It watches what it has read already.
		{algorithm, "(*protocol).inOneStep", instead(`conn.Do("GET"`, `func() (any, error) {
			conn.Do("UNWATCH")
			reply, err := conn.Do("GET", c.Key)
			conn.Do("WATCH", c.Key)
			return reply, err
		}()`), SetNXGetSetWatch, "TakeOverRace ReleaseAtomic ExtendAtomic"},
	}
}

func setNXPX() []Mutant {
	const file = "setnxpx/setnxpx.go"
	return []Mutant{
		{file, "", omit(`"NX"`), SetNXPX, "Exclusive NamesIndependent"},
		{file, "(*protocol).Acquire", never("strategy.ErrRefused"), SetNXPX, "WrongType"},
	}
}

func luaScript() []Mutant {
	return []Mutant{
		{"luascript/acquire.lua", "", never("holder").nth(2), LuaScript, "Exclusive Processes HolderKilled"},
		{"luascript/acquire.lua", "", omit("'PX', ARGV[2]"), LuaScript, "Inspect Expires HolderKilled"},
		{"luascript/acquire.lua", "", skip("redis.call('SET', KEYS[2]"), LuaScript, "Inspect"},
		{"luascript/release.lua", "", never("holder ~= ARGV[1]"), LuaScript, "ReleaseOnlyOwn ReleaseAtomic ForceRelease"},
		{"luascript/release.lua", "", skip("redis.pcall('PUBLISH'"), LuaScript, "WokenByRelease"},
		{"luascript/extend.lua", "extend", instead("math.max(", "1"), LuaScript, "ExtendRestarts KeptAlive"},
		{"luascript/extend.lua", "extend", never("holder ~= token"), LuaScript, "ExtendOnlyOwn ExtendAtomic"},
		{"luascript/adopt.lua", "", never("holder ~= ARGV[1]"), LuaScript, "AdoptOnlyHeld"},
		{"luascript/adopt.lua", "", instead("ARGV[2]", "ARGV[1]"), LuaScript, "AdoptOnce"},
		{"luascript/fence.lua", "next_fence", instead("math.max(", "7"), LuaScript, "FenceRises FenceOrders"},
		{"luascript/luascript.go", "(*protocol).Acquire", instead("!announced", "!announced && false"), ForeignHolder, "redsync redis-py setnxpx"},
		{"luascript/luascript.go", "(*protocol).Acquire", instead("!announced", "!announced || true"), Quiet, "Fenced Unfenced"},
	}
}

func reentrant() []Mutant {
	const acquire, holds, release, adopt, force = "reentrant/acquire.lua", "reentrant/holds.lua", "reentrant/release.lua", "reentrant/adopt.lua", "reentrant/force.lua"
	return []Mutant{
		{"reentrant/reentrant.go", "(*protocol).Acquire", instead("c.Token", "c.Owner"), Reentrant, "ReentryCount ReentryLastRelease"},
		{"reentrant/reentrant.go", "(*protocol).Release", never("c.Force"), Reentrant, "ReentryForce"},
		{acquire, "", never("lock.owner ~= ARGV[1]"), Reentrant, "Exclusive ReentryByOwner ReentryUnnamed ReentryAfterLoss"},
		{acquire, "", never("ARGV[4] == '1'"), Reentrant, "ReentryOvertakesNobody"},
		{acquire, "", instead("lock.fence", "issue_fence(KEYS[2])"), Reentrant, "ReentryFence"},
		{acquire, "", skip("redis.call('PEXPIREAT'").nth(2), Reentrant, "Exclusive ReleaseFrees"},
		{holds, "read_lock", never("ends < now"), Reentrant, "ReentryDeadHold"},
		{holds, "read_lock", always("(number(value) or 0) > 0"), NoLock, "a_fence_never_issued"},
		{holds, "read_lock", always("value ~= ''"), NoLock, "an_owner_of_no_name"},
		{holds, "keep", never("redis.call('PTTL', key) == -2"), StoodStill, "Extended Reentered"},
		{holds, "keep", instead("math.max(ends, lock.last)", "ends"), Reentrant, "ReentryOwnTTL"},
		{holds, "keep", instead("'HSET'", "'HSETNX'"), Reentrant, "ExtendRestarts KeptAlive ReentryRenewal"},
		{"reentrant/extend.lua", "", always("lock.holds[token]"), Reentrant, "ExtendOnlyOwn ReentryAfterLoss"},
		{release, "", never("lock.count > 1"), Reentrant, "Reentry ReentryLastRelease ReentryByContext ReentryRenewal"},
		{release, "", always("lock.holds[ARGV[1]]"), Reentrant, "ReentryReleaseOnce ReleaseOnlyOwn"},
		{release, "", instead("lock.owner", "'token'").nth(2), Reentrant, "ReentryWakes WokenByNotification"},
		{force, "", never("lock.fence ~="), Reentrant, "ReentryForce"},
		{adopt, "", always("lock.count == 1"), Reentrant, "ReentryAdopt"},
		{adopt, "", skip("end_hold("), Reentrant, "AdoptOnce"},
		{"reentrant/inspect.lua", "", instead("lock.count", "1").nth(2), Reentrant, "ReentryCount"},
	}
}
