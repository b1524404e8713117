package lessons

func init() {
	shown["flash-sale"] = []string{
		"no more is sold than there is: VIOLATED",
		"no more is sold than there is: KEPT",
		// no lock; both forms of the lock, the transaction, and the script
		"no more is sold than there is: VIOLATED; no more is sold than there is: KEPT; no more is sold than there is: KEPT; " +
			"no more is sold than there is: KEPT; no more is sold than there is: KEPT",
	}
}
