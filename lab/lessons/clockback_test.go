package lessons

func init() {
	shown["clock-back"] = []string{
		"a dead holder's lock comes free: VIOLATED; one holder at a time: HELD",
		"a dead holder's lock comes free: HELD; one holder at a time: HELD",
	}
}
