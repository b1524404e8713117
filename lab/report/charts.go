package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/lockstrategies/locks/lab/compare"
)

// A chart is bars, one for each strategy that was measured.
type chart struct {
	ID, Title, About string
	Bars             []bar
	Ticks            []tick // of the axis
}

// A bar goes to the median; its tail to where 99 of 100 are.
type bar struct {
	Name         string
	P50, P99     string
	PerPing      string
	Length, Tail string // in percent of the longest

	p50, p99 float64
}

// charts are of latencies: the shorter the better.
func charts(r *compare.Report) (all []chart) {
	solo := chart{ID: "solo", Title: "One caller", About: "Acquire and release, while nobody else wants the lock."}
	hand := chart{ID: "hand-off", Title: "Hand-off", About: fmt.Sprintf("From the release by one process to the grant to another that waits; each holds the lock for %s.", compare.Micros(1000*float64(r.Method.Hold)))}
	for _, s := range r.Strategies {
		if s.Solo != nil {
			solo.add(s.Name, s.Solo.Latency, s.Solo.PerPing)
		}
		if s.HandOff != nil {
			hand.add(s.Name, s.HandOff.Latency, s.HandOff.PerPing)
		}
	}
	for _, c := range []chart{solo, hand} {
		if len(c.Bars) > 0 {
			c.scale()
			all = append(all, c)
		}
	}
	return all
}

// A number is the best that was measured of something, and by whom.
type number struct{ What, Value, Name string }

// proven: all was judged, and no weakness was seen.
func proven(s compare.Column) bool {
	return !slices.ContainsFunc(s.Guarantees, func(g compare.Guarantee) bool {
		return g.Verdict == compare.Weak || g.Verdict == compare.Failed || g.Verdict == compare.Unclear
	})
}

// numbers are the best of each measurement, of the strategies that showed no weakness.
func numbers(r *compare.Report) (all []number) {
	solo, hand, most := math.Inf(1), math.Inf(1), 0.0
	var best [3]number
	for _, s := range r.Strategies {
		if !proven(s) {
			continue
		}
		if s.Solo != nil && s.Solo.P50 < solo {
			solo = s.Solo.P50
			best[0] = number{"one caller takes and releases a lock in", compare.Micros(solo), s.Name}
		}
		if s.HandOff != nil && s.HandOff.P50 < hand {
			hand = s.HandOff.P50
			best[1] = number{"a lock goes from one process to the next in", compare.Micros(hand), s.Name}
		}
		if n := len(s.Contention); n > 0 { // where most contend
			if c := s.Contention[n-1]; c.PerSecond > most {
				most = c.PerSecond
				best[2] = number{fmt.Sprintf("locks granted per second, with %d contenders", c.Contenders), compare.Rate(most), s.Name}
			}
		}
	}
	for _, n := range best {
		if n.Value != "" {
			all = append(all, n)
		}
	}
	return all
}

func (c *chart) add(name string, l compare.Latency, perPing float64) {
	b := bar{Name: name, P50: compare.Micros(l.P50), P99: compare.Micros(l.P99), p50: l.P50, p99: l.P99}
	if perPing > 0 {
		b.PerPing = compare.ThreeDigits(perPing)
	}
	c.Bars = append(c.Bars, b)
}

// scale has the bars be as long as there is room. A tail that would leave no room for the
// rest is cut: its number says how long it is.
func (c *chart) scale() {
	const room = 3
	longest, tail := 0.0, 0.0
	for _, b := range c.Bars {
		longest, tail = max(longest, b.p50), max(tail, b.p99)
	}
	most := max(longest, min(tail, room*longest))
	if most <= 0 {
		most = 1
	}
	for _, part := range []float64{0, 0.5, 1} {
		c.Ticks = append(c.Ticks, tick{percent(100 * part), compare.Micros(part * most)})
	}
	for i, b := range c.Bars {
		c.Bars[i].Length, c.Bars[i].Tail = percent(100*b.p50/most), percent(min(100, 100*b.p99/most))
	}
}

// A race is how often a lock is granted when many want it, on a scale of powers of ten.
type race struct {
	Contenders []int
	Marks      []tick
	Runners    []runner
}

type tick struct{ X, Text string }

// A runner is a strategy, with a lane for each number of contenders.
type runner struct {
	Name  string
	Lanes []lane
}

type lane struct {
	Contenders int
	Y, Text    int // the dot's middle, and its words' base line
	X, Low     string
	High       string
	Rate, Jain string
	Left       bool // the words are on the dot's left, where there is more room
}

const laneHeight = 19

// Height is what a runner's lanes take.
func (r runner) Height() int { return laneHeight * len(r.Lanes) }

func newRace(r *compare.Report) race {
	out := race{Contenders: r.Method.Contenders}
	least, most := math.Inf(1), 0.0
	for _, s := range r.Strategies {
		for _, c := range s.Contention {
			if c.PerSecond > 0 {
				least, most = min(least, c.PerSecond), max(most, c.PerSecond)
			}
		}
	}
	if most == 0 {
		return out
	}
	from, to := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
	if from == to {
		to++
	}
	at := func(x float64) float64 {
		if x <= 0 {
			return 0
		}
		return 100 * min(1, max(0, (math.Log10(x)-from)/(to-from)))
	}
	for e := from; e <= to; e++ {
		out.Marks = append(out.Marks, tick{percent(at(math.Pow(10, e))), power(e)})
	}
	for _, s := range r.Strategies {
		if len(s.Contention) == 0 {
			continue
		}
		run := runner{Name: s.Name}
		for i, c := range s.Contention {
			x := at(c.PerSecond)
			y := laneHeight*i + laneHeight/2
			run.Lanes = append(run.Lanes, lane{
				Contenders: c.Contenders, Y: y, Text: y + 4,
				X: percent(x), Low: percent(at(c.Lowest)), High: percent(at(c.Highest)),
				Rate: compare.Rate(c.PerSecond), Jain: strconv.FormatFloat(c.Jain, 'f', 2, 64), Left: x > 55,
			})
		}
		out.Runners = append(out.Runners, run)
	}
	return out
}

// power is a power of ten where there is little room.
func power(e float64) string {
	for _, unit := range []struct {
		e    float64
		name string
	}{{6, " M"}, {3, " k"}} {
		if e >= unit.e {
			return compare.ThreeDigits(math.Pow(10, e-unit.e)) + unit.name
		}
	}
	return compare.ThreeDigits(math.Pow(10, e))
}

// Cells are a runner's lanes by the race's numbers of contenders: nil where one is missing.
func (r race) Cells(of runner) []*lane {
	cells := make([]*lane, len(r.Contenders))
	for i, l := range of.Lanes {
		if k := slices.Index(r.Contenders, l.Contenders); k >= 0 {
			cells[k] = &of.Lanes[i]
		}
	}
	return cells
}
