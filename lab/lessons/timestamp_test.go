package lessons

func init() {
	shown["take-over"] = []string{
		"a dead holder's lock comes free: KEPT; one holder at a time: KEPT",
		"only its holder ends a hold: VIOLATED; one holder at a time: VIOLATED",
	}
	shown["getset"] = []string{
		"nobody but the holder moves its deadline: VIOLATED; one holder at a time: KEPT",
		"nobody but the holder moves its deadline: VIOLATED; one holder at a time: VIOLATED",
	}
	shown["clock"] = []string{
		"one holder at a time: VIOLATED",
		"one holder at a time: KEPT",
	}
	shown["servicestack"] = []string{
		"nobody but the holder moves its deadline: KEPT; one holder at a time: KEPT",
		"one holder at a time: VIOLATED",
		"one holder at a time: KEPT",
	}
}
