package lessons

func init() {
	shown["redlock-fence"] = []string{
		"one holder at a time: KEPT; fences rise: VIOLATED; the store takes no write of a holder whose lock is gone: VIOLATED",
		"one holder at a time: KEPT; fences rise: KEPT; the store takes no write of a holder whose lock is gone: KEPT",
		"one holder at a time: KEPT; fences rise: KEPT; the store takes no write of a holder whose lock is gone: KEPT",
	}
}
