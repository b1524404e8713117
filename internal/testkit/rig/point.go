package rig

import (
	"strings"
	"sync/atomic"

	"github.com/lockstrategies/locks/conformance"
)

// When says on which side of a request something happens.
type When int

const (
	Before When = iota // it leaves
	After              // it was answered, or has failed; its caller has not heard of it yet
)

// At is a gate, for conformance.GateNode, that calls do at the k-th request, from 1,
// whose name contains request: "SET ", "script release". The request waits for do.
func At(request string, k int, when When, do func()) conformance.Gate {
	var seen atomic.Int64
	return func(name string, send func()) {
		hit := strings.Contains(name, request) && seen.Add(1) == int64(k)
		if hit && when == Before {
			do()
		}
		send()
		if hit && when == After {
			do()
		}
	}
}
