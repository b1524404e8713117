package nemesis

// Shrink leaves out of a plan what does not matter: the result is a plan that still fails, and from which no single
// step can be left out. fails plays a plan. Where that is not certain, it plays it a few times.
func Shrink(plan []Track, fails func([]Track) bool) []Track {
	for size := steps(plan); size > 0; size = min(size/2, steps(plan)) {
		for from := 0; from < steps(plan); {
			if less := without(plan, from, from+size); fails(less) {
				plan = less
			} else {
				from += size
			}
		}
	}
	return plan
}

func steps(plan []Track) (n int) {
	for _, t := range plan {
		n += len(t)
	}
	return n
}

// without is the plan without its steps [from, to), counted through all tracks. The other steps stay at their times.
func without(plan []Track, from, to int) (less []Track) {
	i := 0
	for _, t := range plan {
		var kept Track
		var idle Step // what a step that was left out took
		for _, s := range t {
			if from <= i && i < to {
				idle.Pause += s.Pause + s.For
			} else {
				s.Pause += idle.Pause
				idle.Pause = 0
				kept = append(kept, s)
			}
			i++
		}
		less = append(less, kept)
	}
	return less
}
