package mutants

// FairQueue judges package fairqueue.
var FairQueue = Judge{Package: "./fairqueue", Test: "TestConformance/fairqueue", Redis: true}

// Together judges what serves several callers in one request.
var Together = Judge{Package: "./fairqueue", Test: "TestTogether", Redis: true, Own: true, Starts: true}

// Unreleasable and Unreadable judge whether a lock is refused that could not be released.
var (
	Unreleasable = Judge{Package: "./fairqueue", Test: "TestUnreleasable", Redis: true, Own: true, Starts: true}
	Unreadable   = Judge{Package: "./fairqueue", Test: "TestUnreadable", Redis: true, Own: true, Starts: true}
)

// fairQueue are faults of package fairqueue.
func fairQueue() []Mutant {
	return []Mutant{
		{
			Name: "acquire.lua does not ask who holds", File: "fairqueue/acquire.lua",
			Old: "holder = redis.call('GET', lock)", New: "holder = nil",
			Judge: FairQueue, Killed: []string{"Exclusive", "Processes", "HolderKilled"},
		},
		{
			Name: "acquire.lua sets no TTL", File: "fairqueue/acquire.lua",
			Old: "redis.call('SET', lock, token, 'PX', ttl)", New: "redis.call('SET', lock, token)",
			Judge: FairQueue, Killed: []string{"Inspect"},
		},
		{
			Name: "release.lua does not compare", File: "fairqueue/release.lua",
			Old: "if holder ~= token then", New: "if not holder then",
			Judge: FairQueue, Killed: []string{"ReleaseOnlyOwn", "ReleaseAtomic", "ForceRelease"},
		},
		{
			Name: "acquire.lua sets no expiry", File: "fairqueue/acquire.lua",
			Old: "redis.call('SET', lock, token, 'PX', ttl)", New: "redis.call('SET', lock, token)",
			Judge: FairQueue, Killed: []string{"Expires", "HolderKilled"},
		},
		{
			Name: "extend.lua counts a millisecond", File: "fairqueue/extend.lua",
			Old: "call('PEXPIRE', lock, ttl, gt)", New: "call('PEXPIRE', lock, 1)",
			Judge: FairQueue, Killed: []string{"ExtendRestarts", "KeptAlive"},
		},
		{
			Name: "extend.lua does not compare", File: "fairqueue/extend.lua",
			Old: "holders[i] == token and", New: "holders[i] and",
			Judge: FairQueue, Killed: []string{"ExtendOnlyOwn", "ExtendAtomic"},
		},
		{
			Name: "extend.lua does not compare what it looks at again", File: "fairqueue/extend.lua",
			Old: "if holder ~= token then", New: "if not holder then",
			Judge: FairQueue, Killed: []string{"ExtendOnlyOwn", "ExtendAtomic"},
		},
		{
			Name: "adopt.lua makes the lock anew", File: "fairqueue/adopt.lua",
			Old: "if holder ~= ARGV[1] then", New: "if not holder then redis.call('SET', KEYS[1], ARGV[1]) elseif holder ~= ARGV[1] then",
			Judge: FairQueue, Killed: []string{"AdoptOnlyHeld"},
		},
		{
			Name: "adopt.lua hands the fence on with the lock", File: "fairqueue/adopt.lua",
			Old: "\nreturn fence\n", New: "\nreturn tonumber(redis.call('GET', KEYS[2])) - 1000000\n",
			Judge: FairQueue, Killed: []string{"FenceRises"},
		},
		{
			Name: "adopt.lua keeps the token", File: "fairqueue/adopt.lua",
			Old: "redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])", New: "redis.call('PEXPIRE', KEYS[1], ARGV[2])",
			Judge: FairQueue, Killed: []string{"AdoptOnce"},
		},
		{
			Name: "fence.lua always gives the same number", File: "fairqueue/fence.lua",
			Old: "local first = math.max(n + 1, now)", New: "local first = 7",
			Judge: FairQueue, Killed: []string{"FenceRises", "FenceOrders"},
		},
		{
			Name: "release.lua asks nobody in the queue", File: "fairqueue/release.lua",
			Old: "if not grant_next(lock, queue, counter) then", New: "if true then",
			Judge: FairQueue, Killed: []string{"WokenByRelease", "FairAcrossProcesses"},
		},
		{
			Name: "inspect.lua reads the queue from its end", File: "fairqueue/inspect.lua",
			Old: "table.insert(waiting, token)", New: "table.insert(waiting, 1, token)",
			Judge: FairQueue, Killed: []string{"WhoQueues"},
		},
		{
			Name: "acquire.lua lets in who comes anew", File: "fairqueue/acquire.lua",
			Old: "if not holder then", New: "if false then",
			Judge: FairQueue, Killed: []string{"NoBarging"},
		},
		{
			Name: "free.lua asks nobody in the queue", File: "fairqueue/free.lua",
			Old: "KEYS, 1, 2 * n)", New: "KEYS, 1, n)",
			Judge: Together, Killed: []string{"AQueue"},
		},
		{
			Name: "free.lua takes a lock that another has just got", File: "fairqueue/free.lua",
			Old: "ARGV[4 + i], 'NX', 'PX', ttl", New: "ARGV[4 + i], 'PX', ttl",
			Judge: Together, Killed: []string{"TwoWantTheSame"},
		},
		{
			Name: "free.lua sets no TTL", File: "fairqueue/free.lua",
			Old: "ARGV[4 + i], 'NX', 'PX', ttl", New: "ARGV[4 + i], 'NX'",
			Judge: Together, Killed: []string{"Fenced", "Unfenced"},
		},
		{
			Name: "free.lua sets no TTL for one alone", File: "fairqueue/free.lua",
			Old: "ARGV[5], 'NX', 'PX', ttl", New: "ARGV[5], 'NX'",
			Judge: Together, Killed: []string{"Fenced", "Unfenced"},
		},
		{
			Name: "free.lua trusts the clock", File: "fairqueue/free.lua",
			Old: " and count < fence then", New: " then",
			Judge: Together, Killed: []string{"CountersAheadAndLost"},
		},
		{
			Name: "free.lua trusts the clock for one alone", File: "fairqueue/free.lua",
			Old: " and count < fence) then", New: ") then",
			Judge: Together, Killed: []string{"CountersAheadAndLost"},
		},
		{
			Name: "free.lua takes any counter", File: "fairqueue/free.lua",
			Old: " and count >= least and count < fence then", New: " and count < fence then",
			Judge: Together, Killed: []string{"NoCounters"},
		},
		{
			Name: "free.lua takes any counter for one alone", File: "fairqueue/free.lua",
			Old: " and count >= least and count < fence) then", New: " and count < fence) then",
			Judge: Together, Killed: []string{"NoCounters"},
		},
		{
			Name: "free.lua leaves the clock in what is no counter", File: "fairqueue/free.lua",
			Old: "redis.call('SET', counter, last)", New: "last = nil",
			Judge: Together, Killed: []string{"NoCounters", "CountersAheadAndLost"},
		},
		{
			Name: "free.lua starts a counter at the clock", File: "fairqueue/free.lua",
			Old: "local first = fence + 512", New: "local first = fence",
			Judge: Together, Killed: []string{"CountersAheadAndLost"},
		},
		{
			Name: "free.lua starts the counter of one alone at the clock", File: "fairqueue/free.lua",
			Old: "      fence = fence + 512\n", New: "",
			Judge: Together, Killed: []string{"CountersAheadAndLost"},
		},
		{
			Name: "free.lua counts over what is no counter", File: "fairqueue/free.lua",
			Old: "string.format('%.0f', first), 'NX')", New: "string.format('%.0f', first))",
			Judge: Together, Killed: []string{"NoCounters"},
		},
		{
			Name: "free.lua does not count", File: "fairqueue/free.lua",
			Old: "redis.pcall('MSET', unpack(issued)).err", New: "false",
			Judge: Together, Killed: []string{"Fenced"},
		},
		{
			Name: "unqueued.lua does not compare", File: "fairqueue/unqueued.lua",
			Old: "holders[i] == ARGV[1 + i]", New: "holders[i]",
			Judge: Together, Killed: []string{"Fenced", "Unfenced"},
		},
		{
			Name: "unqueued.lua does not compare for one alone", File: "fairqueue/unqueued.lua",
			Old: "redis.pcall('GET', KEYS[1]) == ARGV[2]", New: "redis.pcall('GET', KEYS[1])",
			Judge: Together, Killed: []string{"AQueue"},
		},
		{
			Name: "unqueued.lua asks nobody in the queue", File: "fairqueue/unqueued.lua",
			Old: "redis.pcall('EXISTS', unpack(KEYS, n + 1, 2 * n)) == 0", New: "true",
			Judge: Together, Killed: []string{"AQueue"},
		},
		{
			Name: "unqueued.lua asks nobody in the queue of one alone", File: "fairqueue/unqueued.lua",
			Old: "redis.pcall('EXISTS', KEYS[2]) == 0", New: "true",
			Judge: Together, Killed: []string{"AQueue"},
		},
		{
			Name: "unqueued.lua frees a lock twice", File: "fairqueue/unqueued.lua",
			Old: "not gone[KEYS[i]] and 1", New: "1",
			Judge: Together, Killed: []string{"TwoGiveUpTheSame"},
		},
		{
			Name: "unqueued.lua tells nobody", File: "fairqueue/unqueued.lua",
			Old: "redis.pcall('PUBLISH', ARGV[1 + n + i], ARGV[1 + i])", New: "",
			Judge: Together, Killed: []string{"WhoListens"},
		},
		{
			Name: "unqueued.lua tells nobody of one alone", File: "fairqueue/unqueued.lua",
			Old: "redis.pcall('PUBLISH', ARGV[3], ARGV[2])", New: "",
			Judge: Together, Killed: []string{"WhoListens"},
		},
		{
			Name: "each.lua ends with the first error", File: "fairqueue/each.lua",
			Old: "pcall(answer, i)", New: "true, answer(i)",
			Judge: Together, Killed: []string{"NoLocksNoCounters"},
		},
		{
			Name: "fairqueue.go never asks whether it may release", File: "fairqueue/fairqueue.go",
			Old: "if !names.proven.Load() {", New: "if false {",
			Judge: Unreadable, Killed: []string{"Fenced", "Unfenced"},
		},
		{
			Name: "fairqueue.go learns nothing from a release that is forbidden", File: "fairqueue/fairqueue.go",
			Old: "names.proven.Store(false)", New: "",
			Judge: Unreleasable, Killed: []string{"Later"},
		},
		{
			Name: "acquire.lua does not ask whether it may release", File: "fairqueue/acquire.lua",
			Old: "if unproven and redis.acl_check_cmd", New: "if false and redis.acl_check_cmd",
			Judge: Unreleasable, Killed: []string{"FromTheFirst"},
		},
		{
			Name: "queue.lua makes an heir the holder for a minute", File: "fairqueue/queue.lua",
			Old: "redis.pcall('SET', lock, token, 'PX', ms)", New: "redis.pcall('SET', lock, token, 'PX', 60000)",
			Judge: FairQueue, Killed: []string{"DeadHeir"},
		},
	}
}
