package conformance

func quorum() []Property {
	return nil
}

// majority is how many of n have to agree, so that no two can be agreed on.
func majority(n int) int { return n/2 + 1 }
