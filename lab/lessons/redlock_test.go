package lessons

func init() {
	shown["quorum"] = []string{
		"one holder at a time: KEPT; the lock is available though servers are dead: KEPT",
		"the lock is available though servers are dead: VIOLATED; an outage is not called held: KEPT",
		"one holder at a time: VIOLATED",
		"one holder at a time: KEPT",
	}
	shown["split-votes"] = []string{
		"of those who ask for a free lock, one gets it: VIOLATED",
		"of those who ask for a free lock, one gets it: KEPT",
	}
	shown["fast-clock"] = []string{
		"one holder at a time: VIOLATED",
		"one holder at a time: KEPT; a holder stops before its majority ends: KEPT",
	}
	shown["restart"] = []string{
		"one holder at a time: VIOLATED",
		"one holder at a time: KEPT; the lock is available though servers are dead: KEPT",
	}
}
