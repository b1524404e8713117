package lessons

func init() {
	shown["herd"] = []string{
		"one holder at a time: KEPT; who comes first is served first: VIOLATED; a hand-off costs the same however many wait: VIOLATED",
		"one holder at a time: KEPT; who comes first is served first: VIOLATED; a hand-off costs the same however many wait: VIOLATED",
		"one holder at a time: KEPT; who comes first is served first: KEPT; a hand-off costs the same however many wait: KEPT",
	}
}
