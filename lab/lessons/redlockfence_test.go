package lessons

func init() {
	shown["redlock-fence"] = []string{
		"one holder at a time: HELD; fences rise: VIOLATED; the store takes no write of a holder whose lock is gone: VIOLATED",
		"one holder at a time: HELD; fences rise: HELD; the store takes no write of a holder whose lock is gone: HELD",
		"one holder at a time: HELD; fences rise: HELD; the store takes no write of a holder whose lock is gone: HELD",
	}
}
