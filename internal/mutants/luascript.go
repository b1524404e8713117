package mutants

// LuaScript judges package luascript.
var LuaScript = Judge{Package: "./luascript", Test: "TestConformance/luascript", Redis: true}

// luaScript are faults of package luascript.
func luaScript() []Mutant {
	return []Mutant{
		{
			Name: "acquire.lua does not ask who holds", File: "luascript/acquire.lua",
			Old: "holder = redis.call('GET', KEYS[1])", New: "holder = nil",
			Judge: LuaScript, Killed: []string{"Exclusive", "Processes", "HolderKilled"},
		},
		{
			Name: "acquire.lua sets no TTL", File: "luascript/acquire.lua",
			Old: "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])", New: "redis.call('SET', KEYS[1], ARGV[1])",
			Judge: LuaScript, Killed: []string{"Inspect"},
		},
		{
			Name: "release.lua does not compare", File: "luascript/release.lua",
			Old: "if holder ~= ARGV[1] then", New: "if not holder then",
			Judge: LuaScript, Killed: []string{"ReleaseOnlyOwn", "ReleaseAtomic", "ForceRelease"},
		},
		{
			Name: "acquire.lua sets no expiry", File: "luascript/acquire.lua",
			Old: "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])", New: "redis.call('SET', KEYS[1], ARGV[1])",
			Judge: LuaScript, Killed: []string{"Expires", "HolderKilled"},
		},
		{
			Name: "extend.lua counts a millisecond", File: "luascript/extend.lua",
			Old: "count_anew(lock, ARGV[#KEYS + i] or ARGV[#KEYS + 1])", New: "redis.call('PEXPIRE', lock, 1)",
			Judge: LuaScript, Killed: []string{"ExtendRestarts", "KeptAlive"},
		},
		{
			Name: "extend.lua does not compare", File: "luascript/extend.lua",
			Old: "if holder == ARGV[i] then", New: "if type(holder) == 'string' then",
			Judge: LuaScript, Killed: []string{"ExtendOnlyOwn", "ExtendAtomic"},
		},
		{
			Name: "adopt.lua makes the lock anew", File: "luascript/adopt.lua",
			Old: "if holder ~= ARGV[1] then", New: "if not holder then redis.call('SET', KEYS[1], ARGV[1]) elseif holder ~= ARGV[1] then",
			Judge: LuaScript, Killed: []string{"AdoptOnlyHeld"},
		},
		{
			Name: "adopt.lua hands the fence on with the lock", File: "luascript/adopt.lua",
			Old: "\nreturn fence\n", New: "\nreturn tonumber(redis.call('GET', KEYS[2])) - 1000000\n",
			Judge: LuaScript, Killed: []string{"FenceRises"},
		},
		{
			Name: "adopt.lua keeps the token", File: "luascript/adopt.lua",
			Old: "redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])", New: "redis.call('PEXPIRE', KEYS[1], ARGV[2])",
			Judge: LuaScript, Killed: []string{"AdoptOnce"},
		},
		{
			Name: "fence.lua always gives the same number", File: "luascript/fence.lua",
			Old: "local first = math.max(n + 1, now)", New: "local first = 7",
			Judge: LuaScript, Killed: []string{"FenceRises", "FenceOrders"},
		},
		{
			Name: "release.lua asks nobody in the queue", File: "luascript/release.lua",
			Old: "if not grant_next(KEYS[1], KEYS[2], KEYS[3]) then", New: "if true then",
			Judge: LuaScript, Killed: []string{"WokenByRelease", "FairAcrossProcesses"},
		},
		{
			Name: "acquire.lua lets in who comes anew", File: "luascript/acquire.lua",
			Old: "if not holder then", New: "if false then",
			Judge: LuaScript, Killed: []string{"NoBarging"},
		},
		{
			Name: "queue.lua makes an heir the holder for a minute", File: "luascript/queue.lua",
			Old: "redis.pcall('SET', lock, token, 'PX', ms)", New: "redis.pcall('SET', lock, token, 'PX', 60000)",
			Judge: LuaScript, Killed: []string{"DeadHeir"},
		},
	}
}
