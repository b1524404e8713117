package lessons

func init() {
	shown["fence"] = []string{
		"one holder at a time: VIOLATED; the store takes no write of a holder whose lock is lost: VIOLATED",
		"one holder at a time: VIOLATED; the store takes no write of a holder whose lock is lost: KEPT",
	}
}
