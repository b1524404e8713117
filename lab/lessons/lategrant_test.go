package lessons

func init() {
	shown["late-grant"] = []string{
		"a lock that nobody holds is free: VIOLATED",
		"a lock that nobody holds is free: KEPT",
		"a lock that nobody holds is free: KEPT",
		"a lock that nobody holds is free: KEPT",
	}
}
