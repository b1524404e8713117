package compare

import (
	"slices"
	"time"
)

// A Report is one comparison: what ran where, and what was seen.
type Report struct {
	Version string    `json:"version"` // of this module
	Began   time.Time `json:"began"`
	Took    Millis    `json:"took_ms"`

	// Interrupted: it was called off, and what is missing was not looked at.
	Interrupted bool `json:"interrupted,omitempty"`

	Redis      Redis     `json:"redis"`
	Machine    Machine   `json:"machine"`
	Method     Method    `json:"method"`
	Ping       *Ping     `json:"ping,omitempty"`
	Strategies []Column  `json:"strategies"`
	LeftOut    []LeftOut `json:"left_out,omitempty"`
	Advice     []Advice  `json:"advice,omitempty"`
}

// LeftOut is a strategy for which there were too few servers.
type LeftOut struct {
	Name    string `json:"name"`
	Servers int    `json:"servers"` // that it takes
}

// Redis is the server, or the first of several.
type Redis struct {
	Choice  string `json:"choice"` // which, and why
	Kind    string `json:"kind"`
	Version string `json:"version"`
	Addr    string `json:"addr"`

	// Addrs are all of them, where there are several: as many as the most demanding
	// strategy takes. The others take the first.
	Addrs []string `json:"addrs,omitempty"`

	// Comparable is false where timings say nothing about a real Redis.
	Comparable bool `json:"timings_comparable"`
}

// Machine is where the contenders ran.
type Machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
}

// Method says how the timings were taken.
type Method struct {
	Each       Millis `json:"each_ms"`    // how long each measurement took, without its warm-up
	WarmUp     Millis `json:"warm_up_ms"` // before each round
	Rounds     int    `json:"rounds"`     // the strategies take turns: so often each
	Hold       Millis `json:"hand_off_hold_ms"`
	Contenders []int  `json:"contenders,omitempty"`
}

// Millis is a duration in milliseconds.
type Millis float64

// MillisOf is a duration in them.
func MillisOf(d time.Duration) Millis { return Millis(float64(d) / float64(time.Millisecond)) }

// Duration is the same as a [time.Duration].
func (m Millis) Duration() time.Duration {
	return time.Duration(float64(m) * float64(time.Millisecond))
}

// A Column is one strategy, and everything that was seen of it.
type Column struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
	Servers int    `json:"servers"` // of Redis, that it takes; 0: it is in another store

	Guarantees []Guarantee  `json:"guarantees"`
	Cost       *Cost        `json:"cost,omitempty"`
	Solo       *Solo        `json:"solo,omitempty"`
	HandOff    *HandOff     `json:"hand_off,omitempty"`
	Contention []Contention `json:"contention,omitempty"`

	// Failures are measurements that could not be taken, and why.
	Failures []Failure `json:"failures,omitempty"`
}

// failed reports whether the strategy's measurement could not be taken.
func (s *Column) failed(what string) bool {
	return slices.ContainsFunc(s.Failures, func(f Failure) bool { return f.Measurement == what })
}

// A Failure is a measurement that could not be taken.
type Failure struct {
	Measurement string `json:"measurement"`
	Error       string `json:"error"`
}

// The measurements, as failures name them.
const (
	MeasuringCost       = "cost"
	MeasuringSolo       = "one caller"
	MeasuringHandOff    = "hand-off"
	MeasuringContention = "contention"
)

// Cost is what a lock costs its servers, while nobody else wants it.
type Cost struct {
	Acquire Requests `json:"acquire"`
	Release Requests `json:"release"`
	HeldTry Requests `json:"held_try"` // TryAcquire, refused

	// KeysLeft is how many keys stay after the release, on all servers; nil: not
	// counted, since a server has too many keys of others to look through.
	KeysLeft *int `json:"keys_left,omitempty"`
}

// Requests is what one call sends, to all its servers.
type Requests struct {
	RoundTrips float64 `json:"round_trips"`

	// InTurn is how many round trips there are to the server that gets most, which is what the caller waits for:
	// several servers are asked at once, as the suite's property OneRound demands.
	InTurn int `json:"round_trips_in_turn"`

	Commands []Commands `json:"commands"` // in the order in which they are first sent
}

// Commands is how often a call sends a command.
type Commands struct {
	Name  string  `json:"name"`
	Times float64 `json:"times"`
}

// Latency is how long something took.
type Latency struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_us"`
	P90   float64 `json:"p90_us"`
	P99   float64 `json:"p99_us"`
	Max   float64 `json:"max_us"`
}

// Ping is the floor: one request that does nothing.
type Ping struct {
	Latency

	// Control is a second series of PINGs, taken in the same way, divided by the
	// first, at the median: how far from 1 it is, is the noise of all ratios.
	Control float64 `json:"control"`
}

// Solo is acquire and release by the only contender.
type Solo struct {
	Latency
	PerPing float64 `json:"p50_per_ping"`
}

// HandOff is from the release by one process to the grant to another that waits.
type HandOff struct {
	Latency
	PerPing  float64 `json:"p50_per_ping"`
	Commands float64 `json:"commands"` // that both send, for each; 0 in another store than Redis, where nobody counts them
}

// Contention is many contenders for one lock.
type Contention struct {
	Contenders int `json:"contenders"`

	// PerSecond is the median of the rounds, Lowest and Highest the ends.
	PerSecond float64 `json:"acquisitions_per_second"`
	Lowest    float64 `json:"lowest"`
	Highest   float64 `json:"highest"`

	// Jain is Jain's index of how many acquisitions each contender got: 1, all the
	// same; 1/n, one got all.
	Jain float64 `json:"jain"`
}
