package lessons

func init() {
	shown["setnx"] = []string{
		"one holder at a time: VIOLATED",
		"one holder at a time: KEPT; a dead holder's lock comes free: VIOLATED",
		"one holder at a time: KEPT; a dead holder's lock comes free: KEPT",
	}
	shown["expire"] = []string{
		"a dead holder's lock comes free: VIOLATED",
		"one holder at a time: KEPT; a dead holder's lock comes free: KEPT",
	}
}
