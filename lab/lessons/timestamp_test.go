package lessons

func init() {
	shown["take-over"] = []string{
		"a dead holder's lock comes free: HELD; one holder at a time: HELD",
		"only its holder ends a hold: VIOLATED; one holder at a time: VIOLATED",
	}
	shown["getset"] = []string{
		"nobody but the holder moves its deadline: VIOLATED; one holder at a time: HELD",
		"nobody but the holder moves its deadline: VIOLATED; one holder at a time: VIOLATED",
	}
	shown["clock"] = []string{
		"one holder at a time: VIOLATED",
		"one holder at a time: HELD",
	}
	shown["servicestack"] = []string{
		"nobody but the holder moves its deadline: HELD; one holder at a time: HELD",
		"one holder at a time: VIOLATED",
		"one holder at a time: HELD",
	}
}
