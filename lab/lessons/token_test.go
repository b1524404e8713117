package lessons

func init() {
	shown["fixed-value"] = []string{
		"only its holder ends a hold: VIOLATED; one holder at a time: VIOLATED",
		"only its holder ends a hold: KEPT; one holder at a time: KEPT",
		"only its holder ends a hold: VIOLATED; one holder at a time: VIOLATED",
	}
	shown["compare-delete"] = []string{
		"only its holder ends a hold: KEPT; one holder at a time: KEPT",
		"only its holder ends a hold: VIOLATED; one holder at a time: VIOLATED",
	}
	shown["lua"] = []string{
		"only its holder ends a hold: KEPT; one holder at a time: KEPT",
		"only its holder ends a hold: KEPT; one holder at a time: KEPT",
		"only its holder ends a hold: KEPT; one holder at a time: KEPT",
		"only its holder ends a hold: KEPT; one holder at a time: KEPT",
	}
}
