package lessons

func init() {
	shown["redlock-fence"] = []string{
		"one holder at a time: KEPT; fences rise: VIOLATED; the store takes no write of a holder whose lock is lost: VIOLATED",
		"one holder at a time: KEPT; fences rise: KEPT; the store takes no write of a holder whose lock is lost: KEPT",
		"one holder at a time: KEPT; fences rise: KEPT; the store takes no write of a holder whose lock is lost: KEPT",
	}
}
