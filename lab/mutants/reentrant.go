package mutants

// Reentrant judges package reentrant; ReentrantMemory judges, in this process, how the
// machinery serves locks that let their owner in again.
var (
	Reentrant       = Judge{Package: "./reentrant", Test: "TestConformance/reentrant", Redis: true}
	ReentrantMemory = Judge{Package: "./conformance", Test: "TestMemory/reentrant"}

	// NoLock judges what the suite cannot write, as it does not know the form of a lock.
	NoLock = Judge{Package: "./reentrant", Test: "TestNoLock", Redis: true, Own: true}

	// StoodStill judges what a script does that a server has executed half, and then stood
	// still for a TTL.
	StoodStill = Judge{Package: "./reentrant", Test: "TestStoodStill", Redis: true, Own: true}
)

// reentrant are faults of package reentrant, and of the machinery around it.
func reentrant() []Mutant {
	return []Mutant{
		{
			Name: "an owner waits for those who wait for it", File: "strategy/line.go",
			Old: "p.unsure = p.owner != \"\" && !p.isHead", New: "p.unsure = false",
			Judge: ReentrantMemory, Killed: []string{"ReentryBesideWaiters"},
		},
		{
			Name: "an owner takes what others stand in line for", File: "strategy/acquire.go",
			Old: "c.Again = true", New: "c.Again = false",
			Judge: ReentrantMemory, Killed: []string{"ReentryOvertakesNobody"},
		},
		{
			Name: "a lease's context does not say whose it is", File: "strategy/lease.go",
			Old: "context.WithCancelCause(WithOwner(parent, l.claim.Owner))", New: "context.WithCancelCause(parent)",
			Judge: ReentrantMemory, Killed: []string{"ReentryByContext", "ReentryUnnamed"},
		},
		{
			Name: "an adopted hold is always the adopter's", File: "strategy/lease.go",
			Old: "l.claim.Owner = g.Owner // an adopted hold may come with one", New: "g.Owner = l.claim.Owner",
			Judge: ReentrantMemory, Killed: []string{"ReentryAdopt"},
		},

		{
			Name: "reentrant names holds by their owner", File: "reentrant/reentrant.go",
			Old: "keys(c), c.Owner, c.Token, c.TTL", New: "keys(c), c.Owner, c.Owner, c.TTL",
			Judge: Reentrant, Killed: []string{"ReentryCount", "ReentryLastRelease"},
		},
		{
			Name: "reentrant releases one hold by force", File: "reentrant/reentrant.go",
			Old: "if c.Force {", New: "if false {",
			Judge: Reentrant, Killed: []string{"ReentryForce"},
		},
		{
			Name: "acquire.lua does not compare owners", File: "reentrant/acquire.lua",
			Old: "if lock.owner ~= ARGV[1] then", New: "if lock.owner == '' then",
			Judge: Reentrant, Killed: []string{"Exclusive", "ReentryByOwner", "ReentryUnnamed", "ReentryAfterLoss"},
		},
		{
			Name: "acquire.lua takes what is free for who asks only to enter again", File: "reentrant/acquire.lua",
			Old: "if ARGV[4] == '1' then", New: "if ARGV[4] == '2' then",
			Judge: Reentrant, Killed: []string{"ReentryOvertakesNobody"},
		},
		{
			Name: "acquire.lua issues a fence on re-entry", File: "reentrant/acquire.lua",
			Old: "return lock.fence", New: "return issue_fence(KEYS[2])",
			Judge: Reentrant, Killed: []string{"ReentryFence"},
		},
		{
			Name: "acquire.lua makes a lock without expiry", File: "reentrant/acquire.lua",
			Old: "redis.call('PEXPIREAT', KEYS[1], ends)\nreturn fence", New: "return fence",
			Judge: Reentrant, Killed: []string{"Exclusive", "ReleaseFrees"},
		},
		{
			Name: "holds.lua counts what has lapsed", File: "reentrant/holds.lua",
			Old: "if ends < now then", New: "if false then",
			Judge: Reentrant, Killed: []string{"ReentryDeadHold"},
		},
		{
			Name: "holds.lua writes a hold to a key that is gone", File: "reentrant/holds.lua",
			Old: "if redis.call('PTTL', key) == -2 then return false end", New: "",
			Judge: StoodStill, Killed: []string{"Extended", "Reentered"},
		},
		{
			Name: "holds.lua takes a fence that was never issued", File: "reentrant/holds.lua",
			Old: "(number(value) or 0) > 0", New: "number(value)",
			Judge: NoLock, Killed: []string{"a_fence_never_issued"},
		},
		{
			Name: "holds.lua takes an owner of no name", File: "reentrant/holds.lua",
			Old: " and value ~= ''", New: "",
			Judge: NoLock, Killed: []string{"an_owner_of_no_name"},
		},
		{
			Name: "holds.lua sets the key's TTL to that of the last to ask", File: "reentrant/holds.lua",
			Old: "math.max(ends, lock.last))", New: "ends)",
			Judge: Reentrant, Killed: []string{"ReentryOwnTTL"},
		},
		{
			Name: "holds.lua keeps the key and not the hold", File: "reentrant/holds.lua",
			Old: "redis.call('HSET', key, 'hold:' .. token, ends)", New: "redis.call('HSETNX', key, 'hold:' .. token, ends)",
			Judge: Reentrant, Killed: []string{"ExtendRestarts", "KeptAlive", "ReentryRenewal"},
		},
		{
			Name: "extend.lua renews what is gone", File: "reentrant/extend.lua",
			Old: "elseif not lock.holds[token] then", New: "elseif false then",
			Judge: Reentrant, Killed: []string{"ExtendOnlyOwn", "ReentryAfterLoss"},
		},
		{
			Name: "release.lua frees with the first release", File: "reentrant/release.lua",
			Old: "if lock.count > 1 then", New: "if lock.count < 1 then",
			Judge: Reentrant, Killed: []string{"Reentry", "ReentryLastRelease", "ReentryByContext", "ReentryRenewal"},
		},
		{
			Name: "release.lua ends some hold when its own is gone", File: "reentrant/release.lua",
			Old: "if not lock.holds[ARGV[1]] then return lock.owner end", New: "if not lock.holds[ARGV[1]] then ARGV[1] = next(lock.holds) end",
			Judge: Reentrant, Killed: []string{"ReentryReleaseOnce", "ReleaseOnlyOwn"},
		},
		{
			Name: "release.lua tells of a token", File: "reentrant/release.lua",
			Old: "redis.pcall('PUBLISH', ARGV[2], lock.owner)", New: "redis.pcall('PUBLISH', ARGV[2], 'token')",
			Judge: Reentrant, Killed: []string{"ReentryWakes", "WokenByNotice"},
		},
		{
			Name: "force.lua does not compare fences", File: "reentrant/force.lua",
			Old: " or lock.fence ~= tonumber(ARGV[2])", New: "",
			Judge: Reentrant, Killed: []string{"ReentryForce"},
		},
		{
			Name: "adopt.lua makes every hold a tenure", File: "reentrant/adopt.lua",
			Old: "if lock.count == 1 then", New: "if lock then",
			Judge: Reentrant, Killed: []string{"ReentryAdopt"},
		},
		{
			Name: "adopt.lua leaves the old hold", File: "reentrant/adopt.lua",
			Old: "end_hold(KEYS[1], lock, ARGV[1])\n", New: "",
			Judge: Reentrant, Killed: []string{"AdoptOnce"},
		},
		{
			Name: "inspect.lua counts one", File: "reentrant/inspect.lua",
			Old: "tokens[1], lock.count,", New: "tokens[1], 1,",
			Judge: Reentrant, Killed: []string{"ReentryCount"},
		},
	}
}
