package mutants

// Acks judges the waiting for replicas, on a server that answers by script; Extensions whether an
// extension gives them something to confirm.
var (
	Acks       = Judge{Package: "./driver", Test: "TestAcks", Own: true}
	Extensions = Judge{Package: "./internal/subjects", Test: "TestExtendWrites", Redis: true, Own: true}
)

// acks are faults of what waits for replicas and the append-only file.
func acks() []Mutant {
	const file = "driver/acks.go"
	return []Mutant{
		{file, "(*acknowledged).confirm", always("cover("), Acks, "TooFew Renewal Lapsed Adopted AOF Bulk"},
		{file, "(*acknowledged).confirm", instead("strategy.ErrUnknown", "strategy.ErrRefused"), Acks, "TooFew Lapsed Adopted WaitFails"},
		{file, "(*acknowledged).confirm", instead("&strategy.ServerError", "why"), Acks, "WaitFails ContextEnds SessionFails"},
		{file, "(*acknowledged).confirm", never("!wrote").nth(1), Acks, "Held Lost"},
		{file, "cover", always("got.AOF"), Acks, "AOF"},
		{file, "patience", instead("left * 3", "left"), Acks, "Granted TooFew"},
		{file, "ask", instead("max(patience", "patience(time.Until(due)).Milliseconds()"), Acks, "Limit"},
		{file, "(*acknowledged).Extend", instead("w.one", "w.single.Extend(ctx, c)"), Acks, "Granted Renewal Lapsed BulkElsewhere"},
		{file, "(*acknowledged).Adopt", instead("w.one", "w.single.Adopt(ctx, c, from)"), Acks, "Adopted"},
		{file, "Acknowledged", skip("acknowledgedBulk"), Acks, "Bulk BulkElsewhere"},
		{file, "acknowledgedBulk.ExtendAll", instead("done(i, a.g", "done(i, a.g, nil)"), Acks, "Bulk"},
		{file, "acknowledgedBulk.ExtendAll", never("!elsewhere(err)"), Acks, "Bulk BulkLoss"},
		{file, "elsewhere", never("MOVED"), Acks, "BulkElsewhere"},
		{file, "(*lent).Eval", never("s.Missing"), Acks, "ForgottenScript"},
		{"strategy/errors.go", "(*AcksError).Unwrap", never("errors.As"), Acks, "WaitFails ContextEnds"},

		{"fairqueue/extend.lua", "", instead("call('PEXPIRE', lock, ttl, gt)", "call('PEXPIRE', lock, ttl, gt) < 2"), Extensions, "fairqueue"},
		{"fairqueue/extend.lua", "extend", instead("math.max(", "ttl"), Extensions, "fairqueue"},
		{"luascript/extend.lua", "extend", instead("math.max(", "ttl"), Extensions, "luascript"},
		{"luascript/extend.lua", "extend", instead("redis.call('PEXPIRE'", "redis.call('PTTL', lock) >= tonumber(ttl) or redis.call('PEXPIRE', lock, ttl) == 1"), Extensions, "luascript"},
		{"reentrant/extend.lua", "", instead("keep(", "lock.holds[token] >= lock.now + ttl or keep(key, lock, token, lock.now + ttl)"), Extensions, "reentrant"},
	}
}
