package mutants

// FairQueue judges package fairqueue; Together what serves several callers in one request;
// Unreleasable and Unreadable whether a lock is refused that could not be released.
var (
	FairQueue    = Judge{Package: "./fairqueue", Test: "TestConformance/fairqueue", Redis: true}
	Together     = Judge{Package: "./fairqueue", Test: "TestTogether", Redis: true, Own: true, Starts: true}
	Unreleasable = Judge{Package: "./fairqueue", Test: "TestUnreleasable", Redis: true, Own: true, Starts: true}
	Unreadable   = Judge{Package: "./fairqueue", Test: "TestUnreadable", Redis: true, Own: true, Starts: true}
)

func fairQueue() []Mutant {
	const (
		acquire  = "fairqueue/acquire.lua"
		adopt    = "fairqueue/adopt.lua"
		extend   = "fairqueue/extend.lua"
		free     = "fairqueue/acquire_fast.lua" // the first of two places is for one caller alone
		release  = "fairqueue/release.lua"
		unqueued = "fairqueue/release_fast.lua" // likewise
	)
	return []Mutant{
		{acquire, "acquire", instead("redis.call('GET', lock)", "nil"), FairQueue, "Exclusive Processes HolderKilled"},
		{acquire, "acquire", omit("'PX', ttl"), FairQueue, "Inspect Expires HolderKilled"},
		{acquire, "acquire", never("not holder"), FairQueue, "NoBarging"},
		{acquire, "acquire", always("redis.acl_check_cmd('DEL'"), Unreleasable, "FromTheFirst"},
		{release, "release", never("holder ~= token"), FairQueue, "ReleaseOnlyOwn ReleaseAtomic ForceRelease"},
		{release, "release", never("grant_next("), FairQueue, "WokenByRelease FairAcrossProcesses"},
		{extend, "", instead("call('PEXPIRE', lock, ttl, gt)", "call('PEXPIRE', lock, 1) == 1"), FairQueue, "ExtendRestarts KeptAlive"},
		{extend, "", instead("holders[i] == token", "holders[i]"), FairQueue, "ExtendOnlyOwn ExtendAtomic"},
		{extend, "extend", instead("holder ~= token", "not holder"), FairQueue, "ExtendOnlyOwn ExtendAtomic"},
		{adopt, "", never("holder ~= ARGV[1]"), FairQueue, "AdoptOnlyHeld"},
		{adopt, "", instead("fence", "fence - 1000000").nth(5), FairQueue, "FenceRises"},
		{adopt, "", instead("ARGV[3]", "ARGV[1]"), FairQueue, "AdoptOnce"},
		{"fairqueue/fence.lua", "next_fences", instead("math.max(", "7"), FairQueue, "FenceRises FenceOrders"},
		{"fairqueue/inspect.lua", "", instead("table.insert(", "table.insert(waiting, 1, token)"), FairQueue, "WhoQueues"},
		{"fairqueue/queue.lua", "grant_next", instead("ms", "60000").nth(3), FairQueue, "DeadHeir"},
		{"fairqueue/fairqueue.go", "(*protocol).Acquire", never("names.proven.Load()"), Unreadable, "Fenced Unfenced"},
		{"fairqueue/fairqueue.go", "(*protocol).Release", skip("names.proven.Store"), Unreleasable, "Later"},

		{free, "", instead("2 * n", "n").nth(1), Together, "AQueue"},
		{free, "", omit("'NX'").nth(2), Together, "NoCounters"},
		{free, "", omit("'NX'").nth(3), Together, "TwoWantTheSame"},
		{free, "", omit("'PX', ttl").nth(1), Together, "Fenced Unfenced"},
		{free, "", omit("'PX', ttl").nth(2), Together, "Fenced Unfenced"},
		{free, "", always("count < fence").nth(1), Together, "CountersAheadAndLost"},
		{free, "", always("count < fence").nth(2), Together, "CountersAheadAndLost"},
		{free, "", always("count >= least").nth(1), Together, "NoCounters"},
		{free, "", always("count >= least").nth(2), Together, "NoCounters"},
		{free, "", skip("redis.call('SET', counter, last)"), Together, "NoCounters CountersAheadAndLost"},
		{free, "", skip("fence = fence + 512"), Together, "CountersAheadAndLost"},
		{free, "", instead("fence + 512", "fence").nth(2), Together, "CountersAheadAndLost"},
		{free, "", never("#issued > 0"), Together, "Fenced"},
		{unqueued, "", instead("holders[i] == ARGV[1 + i]", "holders[i]"), Together, "Fenced Unfenced"},
		{unqueued, "", always("redis.pcall('GET', KEYS[1])"), Together, "AQueue"},
		{unqueued, "", always("redis.pcall('EXISTS'").nth(1), Together, "AQueue"},
		{unqueued, "", always("redis.pcall('EXISTS'").nth(2), Together, "AQueue"},
		{unqueued, "", never("gone[KEYS[i]]").nth(1), Together, "TwoGiveUpTheSame"},
		{unqueued, "", skip("redis.pcall('PUBLISH'").nth(1), Together, "WhoListens"},
		{unqueued, "", skip("redis.pcall('PUBLISH'").nth(2), Together, "WhoListens"},
		{"fairqueue/each.lua", "", instead("pcall(answer", "true, answer(i)"), Together, "NoLocksNoCounters"},
	}
}
