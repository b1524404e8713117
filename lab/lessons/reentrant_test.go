package lessons

func init() {
	shown["reentrant"] = []string{
		"a holder may enter again: VIOLATED",
		"a holder may enter again: KEPT; one holder at a time: VIOLATED; an inner release ends no outer hold: VIOLATED",
		"a holder may enter again: KEPT; one holder at a time: VIOLATED; only its holder ends a hold: VIOLATED",
		"a holder may enter again: KEPT; one holder at a time: KEPT; only its holder ends a hold: KEPT",
	}
}
