package mutants

// Judges of packages internal/node and internal/callback, by servers that the judges make up.
var (
	Half     = Judge{Package: "./internal/node", Test: "TestHalf", Own: true}
	Gather   = Judge{Package: "./internal/node", Test: "TestGather", Own: true}
	Joint    = Judge{Package: "./internal/node", Test: "TestJointCommand", Own: true}
	NotJoint = Judge{Package: "./internal/node", Test: "TestNotJoined", Own: true}
	Leavers  = Judge{Package: "./internal/node", Test: "TestJointCallerLeaves", Own: true}
	Replies  = Judge{Package: "./internal/node", Test: "TestJointReplyIsNotForAll", Own: true}
	Refusals = Judge{Package: "./internal/node", Test: "TestJointRefusal", Own: true}
	Proxies  = Judge{Package: "./internal/node", Test: "TestNothingIsJoinedBehindAProxy", Own: true}
	Topics   = Judge{Package: "./internal/callback", Test: "TestTopics", Own: true}
)

// transport is faults of packages internal/node and internal/callback.
func transport() []Mutant {
	const pipe, wire, joint, topics = "internal/node/pipe.go", "internal/node/wire.go", "internal/node/joint.go", "internal/callback/topics.go"
	return []Mutant{
		// Subscriptions.
		{topics, "Topics.Join", never("t.confirmed"), Topics, "joined_late"},
		{topics, "Topics.Part", always("len(t.listeners) == 0"), Topics, "parted"},
		{topics, "Topics.Part", instead("slices.Concat", "slices.Delete(t.listeners, i, i+1)"), Topics, "parted"},
		{topics, "Topics.forget", never("ts[t.Channel]"), Topics, "followed"},

		// A writer sends for half of the others.
		{pipe, "(*pipe).gather", always("w.writer == o").nth(2), Half, "LastSends"},
		{pipe, "(*pipe).do", skip("w.writer = o"), Half, "LastSends"},
		{pipe, "(*pipe).do", skip("p.guard"), Half, "LastSends"},
		{pipe, "(*pipe).send", instead("false", "w.gathering"), Half, "LastSends"},
		{wire, "(*wire).gathered", instead("w.crowd/2", "w.crowd"), Half, "Half LastSends"},
		{wire, "(*wire).gathered", instead("leastHalf", "0"), Half, "Few"},
		{wire, "(*wire).gathered", always("!w.retired"), Half, "Retired"},
		{wire, "(*wire).gathered", always("w.gathering"), Half, "NoneWrites"},

		// A writer waits for others.
		{pipe, "(*pipe).gather", instead("len(p.queue)", "1 << 30").nth(2), Gather, "All"},
		{pipe, "(*pipe).gather", never("timeup.Why"), Gather, "Late"},
		{pipe, "(*pipe).gather", never("w.gone"), Gather, "Gone"},
		{pipe, "(*pipe).gather", never("w.retired"), Gather, "Retired"},
		{pipe, "(*pipe).patrol", always("!w.gathering"), Gather, "Guarded"},

		// One command serves several callers.
		{joint, "(*wire).deliverJoint", instead("answers[i]", "answers[n-1-i]"), Joint, "layout answers several"},
		// One caller's refusal is everybody's.
		{joint, "(*wire).deliverJoint", instead("i < n", `i < n && func() bool {
			for _, a := range answers {
				if e, ok := a.(redis.Error); ok {
					err = e
				}
			}
			return true
		}()`), Joint, "answers"},
		// All ask for what the first does.
		{joint, "jointArgs", instead("together", `func() (firsts []*op) {
			for range together {
				firsts = append(firsts, together[0])
			}
			return firsts
		}()`).nth(3), Joint, "layout several"},
		{joint, "join", always("mostJoined"), Joint, "limit"},
		{joint, "(*op).joins", never("!same("), NotJoint, "shared_argument shared_integer last_shared_argument"},
		{joint, "(*op).joins", instead("2+o.keys()+shared", "1+o.keys()+shared"), NotJoint, "last_shared_argument"},
		{joint, "(*op).joins", never("o.script != other.script"), NotJoint, "script"},
		{joint, "(*op).joins", never("o.keys() != other.keys()"), NotJoint, "keys_and_arguments"},
		{joint, "(*op).joins", never("o.cmd != other.cmd"), NotJoint, "EVAL"},
		{joint, "(*wire).sendJoint", always("CompareAndSwap"), Leavers, "first_in_the_batch middle_in_the_batch last_in_the_batch"},
		{joint, "(*wire).sendJoint", instead("int32(len(together))", "int32(n)"), Leavers, "first_in_the_batch middle_in_the_batch last_in_the_batch all_but_one_in_the_batch"},
		{joint, "(*wire).deliverJoint", never("dropped"), Leavers, "middle_in_the_batch"},
		{joint, "(*wire).deliverJoint", never("len(answers) != n"), Replies, "long"},
		{joint, "(*Node).alone", never(`"NOPERM "`), Refusals, "NOPERM"},
		{joint, "(*Node).alone", skip("n.apart.Store"), Refusals, "CROSSSLOT"},
		{joint, "saysReadOnly", never("isReadOnly(e)"), Refusals, "READONLY_of_one"},
		{joint, "(*Node).mayJoin", always("!n.unordered"), Proxies, "CLIENT_INFO CLIENT_KILL"},
	}
}
