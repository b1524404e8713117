package lessons

func init() {
	shown["power-loss"] = []string{
		"one holder at a time: VIOLATED",
		"one holder at a time: VIOLATED",
		"one holder at a time: VIOLATED",
		"one holder at a time: HELD",
	}
	shown["fail-over"] = []string{
		"one holder at a time: VIOLATED; who asks is served within a TTL: HELD",
		"one holder at a time: HELD; who asks is served within a TTL: VIOLATED",
		"one holder at a time: HELD; who asks is served within a TTL: HELD",
		"one holder at a time: VIOLATED; who asks is served within a TTL: HELD",
	}
}
