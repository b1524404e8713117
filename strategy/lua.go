package strategy

import _ "embed"

// Lua functions that scripts of several algorithms need. Each is source to be put before
// theirs.
var (
	// EachLua is each(n, answer, answers), for scripts of [NewJointScript]. It returns what
	// answer(1) does for one caller, and for several an array of what answer(i) does for each,
	// unless that is in answers already; an error in it is one caller's.
	//
	//go:embed each.lua
	EachLua string

	// EnqueueLua is enqueue(queue, entry, left, ttl), for those of a [Queuer]. It gives an
	// entry its place in the queue, a list, and returns 1; or 0 where that has no place.
	//
	//go:embed enqueue.lua
	EnqueueLua string
)
