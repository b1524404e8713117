// Package mutants holds faults that its test puts into the real sources, Go and
// Lua, one at a time, to see the conformance suite convict each. A suite that
// acquits one proves less than it says.
package mutants

// A Mutant is one fault: an edit of one file.
type Mutant struct {
	Name string
	File string // from the module's root
	Old  string // occurs in File exactly once
	New  string

	// Judge is the subject that is to be convicted.
	Judge Judge
	// Killed are the properties that must convict it, each on its own.
	Killed []string
}

// A Judge is a test that holds the suite on one subject.
type Judge struct {
	Package string // from the module's root
	Test    string // with the subject: a property is a subtest of it
	Redis   bool   // needs a server
}

// The judges.
var (
	Memory    = Judge{Package: "./conformance", Test: "TestMemory/memory"}
	LuaScript = Judge{Package: "./luascript", Test: "TestConformance/luascript", Redis: true}
	SetNXPX   = Judge{Package: "./setnxpx", Test: "TestConformance/setnxpx", Redis: true}
)

// All returns the mutants. Those of the machinery are judged in memory.
func All() []Mutant {
	return []Mutant{
		// Waiting.
		{
			Name: "everybody asks the servers before standing in line", File: "strategy/acquire.go",
			Old: "if !l.s.hasLine(l.key) {", New: "if true {",
			Judge: Memory, Killed: []string{"WaitersAreCheap"},
		},
		{
			Name: "the last to come is served second", File: "strategy/line.go",
			Old: "ln.places = append(ln.places, p)", New: "ln.places = slices.Insert(ln.places, min(1, len(ln.places)), p)",
			Judge: Memory, Killed: []string{"FirstComeFirstServed"},
		},
		{
			Name: "who has subscribed does not ask again", File: "strategy/line.go",
			Old: "ln.why.ask = true // also for the next, should this one leave now\n\treturn true, true", New: "return false, true",
			Judge: Memory, Killed: []string{"NoMissedRelease"},
		},
		{
			Name: "a wait that ends does not say that the lock is held", File: "strategy/acquire.go",
			Old: `fmt.Errorf("%w; gave up after %v: %w", err,`, New: `fmt.Errorf("%v; gave up after %v: %w", err,`,
			Judge: Memory, Killed: []string{"WaitLimit", "CancelledWaiting"},
		},
		{
			Name: "a wait that ends does not say why", File: "strategy/acquire.go",
			Old: "err, waited, contextError(ctx))", New: "err, waited, ctx.Err())",
			Judge: Memory, Killed: []string{"CancelledWaiting"},
		},
		{
			Name: "Persist does not", File: "strategy/acquire.go",
			Old: "return l.s.o.Persist", New: "return false",
			Judge: Memory, Killed: []string{"Persist"},
		},
		{
			Name: "a context that is done is not looked at", File: "strategy/lock.go",
			Old: "if ctx.Err() != nil {\n\t\treturn fmt.Errorf(\"lock %q: %w\", l.name, contextError(ctx))", New: "if false {\n\t\treturn contextError(ctx)",
			Judge: Memory, Killed: []string{"CancelledBefore"},
		},

		// Leases.
		{
			Name: "the deadline counts from the reply", File: "strategy/lock.go",
			Old: "newLease(l.s, c, g, start)", New: "newLease(l.s, c, g, end)",
			Judge: Memory, Killed: []string{"DeadlineFromRequest", "LateGrant"},
		},
		{
			Name: "a grant that came too late is a lease", File: "strategy/lock.go",
			Old: "if !end.Before(lease.deadline) || l.s.isClosed() {", New: "if l.s.isClosed() {",
			Judge: Memory, Killed: []string{"LateGrant"},
		},
		{
			Name: "a lease can be released twice", File: "strategy/lease.go",
			Old: "after := l.look()\n\tif l.end != nil {\n\t\terr := l.end\n\t\tl.mu.Unlock()", New: "after := l.look()\n\tif l.isLost() {\n\t\terr := l.end\n\t\tl.mu.Unlock()",
			Judge: Memory, Killed: []string{"ReleaseOnce"},
		},
		{
			Name: "a release is given up with its context", File: "strategy/lease.go",
			Old: "l.s.p.Release(context.WithoutCancel(ctx), c)", New: "l.s.p.Release(ctx, c)",
			Judge: Memory, Killed: []string{"ReleaseDetached"},
		},
		{
			Name: "all tokens are one", File: "strategy/token.go",
			Old: "return id.String(), nil", New: "return id.String()[:0] + \"token\", nil",
			Judge: Memory, Killed: []string{"TokensUnique", "ExtendOnlyOwn"},
		},
		{
			Name: "a release closes Lost", File: "strategy/lease.go",
			Old: "&& l.lost != nil {", New: "|| l.lost != nil {",
			Judge: Memory, Killed: []string{"ReleaseIsNoLoss", "Detach"},
		},
		{
			Name: "a context ends without a cause", File: "strategy/lease.go",
			Old: "x.cancel(end)", New: "x.cancel(nil)",
			Judge: Memory, Killed: []string{"ContextEnds"},
		},
		{
			Name: "Detach keeps the token for itself", File: "strategy/lease.go",
			Old: "return c.Token, nil", New: "return \"\", nil",
			Judge: Memory, Killed: []string{"Detach"},
		},
		{
			Name: "Do drops what its function says", File: "strategy/lock.go",
			Old: "return fn(held, lease)", New: "fn(held, lease)\n\treturn nil",
			Judge: Memory, Killed: []string{"Do"},
		},

		// Renewal and loss.
		{
			Name: "the clock has no say", File: "strategy/lease.go",
			Old: "if time.Now().Before(l.deadline) {\n\t\tl.plan()", New: "if true {\n\t\tl.plan()",
			Judge: Memory, Killed: []string{"LossByDeadline"},
		},
		{
			Name: "a renewal under way delays the loss", File: "strategy/keepalive.go",
			Old: "if l.watch {", New: "if l.watch && l.busy == nil {",
			Judge: Memory, Killed: []string{"LossWithoutNetwork"},
		},
		{
			Name: "the maximum hold is ten times as long", File: "strategy/lease.go",
			Old: "l.until = l.granted.Add(maxHold)", New: "l.until = l.granted.Add(10 * maxHold)",
			Judge: Memory, Killed: []string{"MaxHold"},
		},
		{
			Name: "any maximum hold will do", File: "strategy/lease.go",
			Old: "if maxHold != 0 && maxHold < l.s.o.TTL {", New: "if maxHold < 0 {",
			Judge: Memory, Killed: []string{"BadMaxHold"},
		},

		// Names and options.
		{
			Name: "names may be of any length", File: "strategy/strategy.go",
			Old: `if name == "" || len(name) > MaxNameLen {`, New: `if name == "" {`,
			Judge: Memory, Killed: []string{"BadNames"},
		},
		{
			Name: "TTLs may be of any fineness", File: "strategy/options.go",
			Old: "|| o.TTL%time.Millisecond != 0 {", New: "{",
			Judge: Memory, Killed: []string{"BadOptions"},
		},
		{
			Name: "two names share a key", File: "strategy/options.go",
			Old: "(name[0] == '}' || name[0] == '%')", New: "name[0] == '}'",
			Judge: Memory, Killed: []string{"OddNames"},
		},

		// The end.
		{
			Name: "whoever waits is told nothing of Close", File: "strategy/acquire.go",
			Old: "return ErrClosed", New: "return errContext",
			Judge: Memory, Killed: []string{"CloseEndsWaits"},
		},
		{
			Name: "what is closed still serves", File: "strategy/strategy.go",
			Old: "if h.closed {\n\t\treturn ErrClosed", New: "if false {\n\t\treturn ErrClosed",
			Judge: Memory, Killed: []string{"ClosedRefuses"},
		},
		{
			Name: "no deadline comes after Close", File: "strategy/keepalive.go",
			Old: "\t\th.lapse()\n", New: "",
			Judge: Memory, Killed: []string{"LossAfterClose"},
		},

		// The algorithms.
		{
			Name: "acquire.lua does not ask who holds", File: "luascript/acquire.lua",
			Old: "if holder then", New: "if holder == ARGV[1] then",
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
			Old: "if redis.call('PTTL', lock) < tonumber(ttl) then", New: "ttl = 1; do",
			Judge: LuaScript, Killed: []string{"ExtendRestarts", "KeptAlive"},
		},
		{
			Name: "extend.lua does not compare", File: "luascript/extend.lua",
			Old: "if holder == token then", New: "if type(holder) == 'string' then",
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
			Old: "local now = redis.call('TIME')", New: "n = 6\n  local now = {0, 0}",
			Judge: LuaScript, Killed: []string{"FenceRises", "FenceOrders"},
		},
		{
			Name: "setnxpx sets whether the key exists or not", File: "setnxpx/setnxpx.go",
			Old: `"SET", c.Key, c.Token, "NX", "PX",`, New: `"SET", c.Key, c.Token, "PX",`,
			Judge: SetNXPX, Killed: []string{"Exclusive", "NamesIndependent"},
		},
		{
			Name: "setnxpx calls whatever is there held", File: "setnxpx/setnxpx.go",
			Old: "if errors.Is(err, strategy.ErrRefused) {", New: "if errors.Is(err, strategy.ErrClosed) {",
			Judge: SetNXPX, Killed: []string{"WrongType"},
		},
	}
}
