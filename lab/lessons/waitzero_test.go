package lessons

func init() {
	shown["wait-zero"] = []string{
		"one holder at a time: VIOLATED",
		"a lock that nobody holds is free: VIOLATED",
		"a lock that nobody holds is free: KEPT; one holder at a time: KEPT",
		"a lock that nobody holds is free: KEPT",
	}
}
