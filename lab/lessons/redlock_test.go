package lessons

func init() {
	shown["quorum"] = []string{
		"one holder at a time: HELD; the lock is available though servers are dead: HELD",
		"the lock is available though servers are dead: VIOLATED; an outage is not called held: HELD",
		"one holder at a time: VIOLATED",
		"one holder at a time: HELD",
	}
	shown["split-votes"] = []string{
		"of those who ask for a free lock, one gets it: VIOLATED",
		"of those who ask for a free lock, one gets it: HELD",
	}
	shown["fast-clock"] = []string{
		"one holder at a time: VIOLATED",
		"one holder at a time: HELD; a holder stops before its majority ends: HELD",
	}
	shown["restart"] = []string{
		"one holder at a time: VIOLATED",
		"one holder at a time: HELD; the lock is available though servers are dead: HELD",
	}
}
