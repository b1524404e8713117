// Package contract is what packages of this module share of the contract (package strategy) and its users do not need:
// limits, the default pauses, and how texts of servers are shown.
package contract

import "time"

// Limits of strategy.Options, strategy.Acks and names. The docs of strategy say them as numbers.
const (
	MinTTL      = 10 * time.Millisecond
	MaxTTL      = 24 * time.Hour
	MaxNameLen  = 1024 // bytes: of a lock's name, or an owner's
	MaxLabelLen = 256  // bytes
	MaxReplicas = 100
)

// Backoff is the default of strategy.Options.Backoff. It doubles from 2 ms to 250 ms.
func Backoff(attempt int) time.Duration {
	const first, most = 2 * time.Millisecond, 250 * time.Millisecond
	return min(first<<(min(max(attempt, 1), 8)-1), most) // 2 ms << 7 is past the ceiling
}
