package lessons

func init() {
	shown["late-grant"] = []string{
		"a lock that nobody holds is free: VIOLATED",
		"a lock that nobody holds is free: HELD",
		"a lock that nobody holds is free: HELD",
		"a lock that nobody holds is free: HELD",
	}
}
