package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// A summary is the median of what the repetitions have shown, and an interval for it.
type summary struct {
	center, lo, hi float64
	cover          float64 // how probable it is that the interval covers the true median
	n              int
}

// confidence is what intervals are to have.
const confidence = 0.95

// summarize assumes nothing of how values are distributed: the interval lies between two of
// them, by their order. Few values cannot give the confidence: five give 94 % between the
// least and the greatest. Then that is what there is, and cover says so.
func summarize(values []float64) summary {
	v := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(v) == 0 {
		return summary{center: math.NaN(), lo: math.NaN(), hi: math.NaN()}
	}
	slices.Sort(v)
	n := len(v)
	s := summary{median(v), v[0], v[n-1], 1 - math.Pow(2, 1-float64(n)), n}
	// Between the k-th of each end the median lies unless fewer than k of n fall on one side of it.
	fewer, exactly := 0.0, math.Pow(0.5, float64(n))
	for k := 0; 2*k < n; k++ {
		fewer += exactly
		exactly *= float64(n-k) / float64(k+1)
		if cover := 1 - 2*fewer; cover >= confidence {
			s.lo, s.hi, s.cover = v[k], v[n-1-k], cover
		}
	}
	return s
}

// median of sorted values, of which there is one at least.
func median(v []float64) float64 {
	n := len(v)
	if n%2 == 1 || v[n/2-1] == v[n/2] { // also if both are infinite
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}

// paired divides what was measured in the same repetition; NaN where one of both is missing.
func paired(values, base []float64) []float64 {
	ratios := make([]float64, min(len(values), len(base)))
	for i := range ratios {
		ratios[i] = values[i] / base[i]
		if base[i] == 0 {
			ratios[i] = math.NaN()
		}
	}
	return ratios
}

// quantile is the q-quantile of what was measured, which it sorts; 0 if there is nothing.
func quantile[T cmp.Ordered](v []T, q float64) T {
	if len(v) == 0 {
		var zero T
		return zero
	}
	slices.Sort(v)
	return v[min(int(q*float64(len(v))), len(v)-1)]
}

// jain is Jain's index of fairness: 1 if all have the same, 1/n if one has all.
func jain(counts []int) float64 {
	var sum, squares float64
	for _, c := range counts {
		sum += float64(c)
		squares += float64(c) * float64(c)
	}
	if squares == 0 {
		return math.NaN()
	}
	return sum * sum / (float64(len(counts)) * squares)
}

// spread is the greatest of the counts over the least.
func spread(counts []int) float64 {
	if most := slices.Max(counts); most > 0 {
		return float64(most) / float64(slices.Min(counts)) // +Inf if somebody got nothing
	}
	return math.NaN()
}

func sum(counts []int) (total int) {
	for _, c := range counts {
		total += c
	}
	return total
}

// crossings are the gaps between the call of a release and the grant that follows it, where
// that is another process's, and overlaps how many grants came before that call.
func crossings(processes [][]hold) (gaps []float64, overlaps int) {
	type granted struct {
		hold
		process int
	}
	var all []granted
	for p, holds := range processes {
		for _, h := range holds {
			all = append(all, granted{h, p})
		}
	}
	slices.SortFunc(all, func(a, b granted) int { return cmp.Compare(a.From, b.From) })
	for i := range all[:max(len(all)-1, 0)] {
		gap := all[i+1].From - all[i].To
		if gap < 0 {
			overlaps++
		}
		if all[i].process != all[i+1].process {
			gaps = append(gaps, float64(gap.Nanoseconds())/1e3)
		}
	}
	return gaps, overlaps
}

// number writes three digits that count.
func number(f float64) string {
	switch {
	case math.IsNaN(f):
		return "–"
	case math.IsInf(f, 1):
		return "∞"
	case f == 0:
		return "0"
	case math.Abs(f) >= 99.95:
		return fmt.Sprintf("%.0f", f)
	case math.Abs(f) >= 9.995:
		return fmt.Sprintf("%.1f", f)
	case math.Abs(f) >= 0.0995:
		return fmt.Sprintf("%.2f", f)
	}
	return fmt.Sprintf("%.2g", f)
}

// String is the median and its interval.
func (s summary) String() string {
	if s.n < 2 {
		return number(s.center)
	}
	return fmt.Sprintf("%s [%s, %s]", number(s.center), number(s.lo), number(s.hi))
}
