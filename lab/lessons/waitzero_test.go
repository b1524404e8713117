package lessons

func init() {
	shown["wait-zero"] = []string{
		"one holder at a time: VIOLATED",
		"a lock that nobody holds is free: VIOLATED",
		"a lock that nobody holds is free: HELD; one holder at a time: HELD",
		"a lock that nobody holds is free: HELD",
	}
}
