package lessons

func init() {
	shown["clock-back"] = []string{
		"a dead holder's lock comes free: VIOLATED; one holder at a time: KEPT",
		"a dead holder's lock comes free: KEPT; one holder at a time: KEPT",
	}
}
