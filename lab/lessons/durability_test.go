package lessons

func init() {
	shown["power-loss"] = []string{
		"one holder at a time: VIOLATED",
		"one holder at a time: VIOLATED",
		"one holder at a time: VIOLATED",
		"one holder at a time: KEPT",
	}
	shown["fail-over"] = []string{
		"one holder at a time: VIOLATED; who asks is served within a TTL: KEPT",
		"one holder at a time: KEPT; who asks is served within a TTL: VIOLATED",
		"one holder at a time: KEPT; who asks is served within a TTL: KEPT",
		"one holder at a time: VIOLATED; who asks is served within a TTL: KEPT",
	}
}
