package mutants

// LuaScript judges package luascript.
var LuaScript = Judge{Package: "./luascript", Test: "TestConformance/luascript", Redis: true}

// ForeignHolder and Quiet judge how its waiters wait.
var (
	ForeignHolder = Judge{Package: "./luascript", Test: "TestForeignHolder", Redis: true, Own: true}
	Quiet         = Judge{Package: "./luascript", Test: "TestQuietAmongItsOwn", Redis: true, Own: true}
)

// luaScript are faults of package luascript.
func luaScript() []Mutant {
	const lock = "luascript/luascript.go"
	return []Mutant{
		{
			Name: "luascript/acquire.lua does not ask for the holder", File: "luascript/acquire.lua",
			Old: "if holder then", New: "if false then",
			Judge: LuaScript, Killed: []string{"Exclusive", "Processes", "HolderKilled"},
		},
		{
			Name: "luascript/acquire.lua sets no TTL", File: "luascript/acquire.lua",
			Old: "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])", New: "redis.call('SET', KEYS[1], ARGV[1])",
			Judge: LuaScript, Killed: []string{"Inspect", "Expires", "HolderKilled"},
		},
		{
			Name: "luascript/acquire.lua does not count", File: "luascript/acquire.lua",
			Old: "if KEYS[2] then redis.call('SET', KEYS[2], fence) end", New: "",
			Judge: LuaScript, Killed: []string{"Inspect"},
		},
		{
			Name: "luascript/release.lua does not compare", File: "luascript/release.lua",
			Old: "if holder ~= ARGV[1] then", New: "if not holder then",
			Judge: LuaScript, Killed: []string{"ReleaseOnlyOwn", "ReleaseAtomic", "ForceRelease"},
		},
		{
			Name: "luascript/release.lua publishes nothing", File: "luascript/release.lua",
			Old: "redis.pcall('PUBLISH', ARGV[2], ARGV[1])", New: "",
			Judge: LuaScript, Killed: []string{"WokenByRelease"},
		},
		{
			Name: "luascript/extend.lua sets a millisecond", File: "luascript/extend.lua",
			Old: "math.max(redis.call('PTTL', lock), ttl)", New: "1",
			Judge: LuaScript, Killed: []string{"ExtendRestarts", "KeptAlive"},
		},
		{
			Name: "luascript/extend.lua does not compare", File: "luascript/extend.lua",
			Old: "if holder ~= token then", New: "if not holder then",
			Judge: LuaScript, Killed: []string{"ExtendOnlyOwn", "ExtendAtomic"},
		},
		{
			Name: "luascript/extend.lua shortens", File: "luascript/extend.lua",
			Old: "math.max(redis.call('PTTL', lock), ttl)", New: "ttl",
			Judge: Extensions, Killed: []string{"luascript"},
		},
		{
			Name: "luascript/extend.lua writes only what lasts longer", File: "luascript/extend.lua",
			Old: "return redis.call('PEXPIRE'", New: "return redis.call('PTTL', lock) >= tonumber(ttl) and 1 or redis.call('PEXPIRE'",
			Judge: Extensions, Killed: []string{"luascript"},
		},
		{
			Name: "luascript/adopt.lua makes the lock again", File: "luascript/adopt.lua",
			Old: "if holder ~= ARGV[1] then", New: "if not holder then redis.call('SET', KEYS[1], ARGV[1]) elseif holder ~= ARGV[1] then",
			Judge: LuaScript, Killed: []string{"AdoptOnlyHeld"},
		},
		{
			Name: "luascript/adopt.lua keeps the token", File: "luascript/adopt.lua",
			Old: "redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])", New: "redis.call('PEXPIRE', KEYS[1], ARGV[3])",
			Judge: LuaScript, Killed: []string{"AdoptOnce"},
		},
		{
			Name: "luascript/fence.lua always gives the same number", File: "luascript/fence.lua",
			Old: "return math.max(n + 1, now[1] * 1000000 + now[2])", New: "return 7",
			Judge: LuaScript, Killed: []string{"FenceRises", "FenceOrders"},
		},
		{
			Name: "luascript.go takes each holder for one that publishes its release", File: lock,
			Old: "held.Silent = !announced", New: "held.Silent = !announced && false",
			Judge: ForeignHolder, Killed: []string{"redsync", "redis-py", "setnxpx"},
		},
		{
			Name: "luascript.go takes no holder for one that publishes its release", File: lock,
			Old: "held.Silent = !announced", New: "held.Silent = !announced || true",
			Judge: Quiet, Killed: []string{"Fenced", "Unfenced"},
		},
	}
}
