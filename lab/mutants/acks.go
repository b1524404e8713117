package mutants

// Acks judges the waiting for replicas, on a server that answers by script; Extensions
// whether an extension gives them something to confirm.
var (
	Acks       = Judge{Package: "./strategy", Test: "TestAcks", Own: true}
	Extensions = Judge{Package: "./internal/subjects", Test: "TestExtendWrites", Redis: true, Own: true}
)

// acks are faults of what waits for replicas and the append-only file.
func acks() []Mutant {
	return []Mutant{
		{
			Name: "however few confirm are enough", File: "strategy/acks.go",
			Old: "enough = why == nil && got.cover(w.acks)", New: "enough = why == nil",
			Judge: Acks, Killed: []string{"TooFew", "Renewal", "Lapsed", "Adopted", "AOF", "Bulk"},
		},
		{
			Name: "the append-only file is not looked at", File: "strategy/acks.go",
			Old: "&& (a.AOF || !want.AOF)", New: "",
			Judge: Acks, Killed: []string{"AOF"},
		},
		{
			Name: "what too few have confirmed is called refused", File: "strategy/acks.go",
			Old: "Kind: ErrUnknown, Err: &AcksError{", New: "Kind: ErrRefused, Err: &AcksError{",
			Judge: Acks, Killed: []string{"TooFew", "Lapsed", "Adopted", "WaitFails"},
		},
		{
			Name: "a WAIT that fails says what became of the lock", File: "strategy/acks.go",
			Old: "case enough && err == nil:\n\t\treturn nil", New: "case err != nil || enough:\n\t\treturn err",
			Judge: Acks, Killed: []string{"WaitFails", "ContextEnds", "SessionFails"},
		},
		{
			Name: "a WAIT that was not sent lends its kind to the error", File: "strategy/acks.go",
			Old: "\tif errors.As(e.Err, &server) {\n\t\treturn server.Err\n\t}\n", New: "\t_ = server\n",
			Judge: Acks, Killed: []string{"WaitFails", "ContextEnds"},
		},
		{
			Name: "also those who find it held wait for replicas", File: "strategy/acks.go",
			Old: "&lent{Node: w.node, conn: conn})); !wrote {", New: "&lent{Node: w.node, conn: conn})); false {",
			Judge: Acks, Killed: []string{"Held", "Lost"},
		},
		{
			Name: "the WAIT takes all the time there is", File: "strategy/acks.go",
			Old: "return left * 3 / 4", New: "return left",
			Judge: Acks, Killed: []string{"Granted", "TooFew"},
		},
		{
			Name: "the WAIT may be for ever", File: "strategy/acks.go",
			Old: "max(patience(time.Until(due)).Milliseconds(), 1)", New: "patience(time.Until(due)).Milliseconds()",
			Judge: Acks, Killed: []string{"Limit"},
		},
		{
			Name: "nobody confirms an extension", File: "strategy/acks.go",
			Old:   "return w.one(ctx, c, func(p single) (Grant, error) { return p.Extend(ctx, c) })",
			New:   "return w.single.Extend(ctx, c)",
			Judge: Acks, Killed: []string{"Granted", "Renewal", "Lapsed", "BulkElsewhere"},
		},
		{
			Name: "nobody confirms an adoption", File: "strategy/acks.go",
			Old:   "return w.one(ctx, c, func(p single) (Grant, error) { return p.Adopt(ctx, c, from) })",
			New:   "return w.single.Adopt(ctx, c, from)",
			Judge: Acks, Killed: []string{"Adopted"},
		},
		{
			Name: "nobody confirms what is renewed together", File: "strategy/acks.go",
			Old:   "bulk = acknowledgedBulk{w}",
			New:   "_ = w",
			Judge: Acks, Killed: []string{"Bulk", "BulkElsewhere"},
		},
		{
			Name: "what is renewed together counts though too few confirm", File: "strategy/acks.go",
			Old:   "done(i, a.g, err)\n\t\t}",
			New:   "done(i, a.g, nil)\n\t\t}",
			Judge: Acks, Killed: []string{"Bulk"},
		},
		{
			Name: "a loss among what is renewed together is not told", File: "strategy/acks.go",
			Old: "if err != nil && !elsewhere(err) {", New: "if false {",
			Judge: Acks, Killed: []string{"Bulk", "BulkLoss"},
		},
		{
			Name: "of a cluster only one server is asked", File: "strategy/acks.go",
			Old:   `return errors.Is(err, ErrRefused) && strings.Contains(err.Error(), "MOVED ")`,
			New:   "return false",
			Judge: Acks, Killed: []string{"BulkElsewhere"},
		},
		{
			Name: "over a connection of its own a script is known or not", File: "strategy/acks.go",
			Old:   "if s.Missing(err) {",
			New:   "if false {",
			Judge: Acks, Killed: []string{"ForgottenScript"},
		},
		{
			Name: "extend.lua writes only what lasts longer", File: "fairqueue/extend.lua",
			Old:   "call('PEXPIRE', lock, ttl, gt) == 1 then",
			New:   "call('PEXPIRE', lock, ttl, gt) < 2 then",
			Judge: Extensions, Killed: []string{"fairqueue"},
		},
		{
			Name: "extend.lua shortens", File: "fairqueue/extend.lua",
			Old:   "math.max(call('PTTL', lock), ttl)",
			New:   "ttl",
			Judge: Extensions, Killed: []string{"fairqueue"},
		},
		{
			Name: "extend.lua, of reentrant, writes only what lasts longer", File: "reentrant/extend.lua",
			Old:   "elseif keep(key, lock, token, lock.now + ttl) then",
			New:   "elseif lock.holds[token] >= lock.now + ttl or keep(key, lock, token, lock.now + ttl) then",
			Judge: Extensions, Killed: []string{"reentrant"},
		},
	}
}
