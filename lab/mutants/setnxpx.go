package mutants

// SetNXPX judges package setnxpx.
var SetNXPX = Judge{Package: "./setnxpx", Test: "TestConformance/setnxpx", Redis: true}

// setNXPX are faults of package setnxpx.
func setNXPX() []Mutant {
	return []Mutant{
		{
			Name: "setnxpx sets whether the key exists or not", File: "setnxpx/setnxpx.go",
			Old: `"SET", c.Key, c.Token, "NX", "PX",`, New: `"SET", c.Key, c.Token, "PX",`,
			Judge: SetNXPX, Killed: []string{"Exclusive", "NamesIndependent"},
		},
		{
			Name: "setnxpx calls whatever is there held", File: "setnxpx/setnxpx.go",
			Old: "if errors.Is(err, strategy.ErrRefused) {", New: "if errors.Is(err, strategy.ErrClosed) {",
			Judge: SetNXPX, Killed: []string{"WrongType"},
		},
	}
}
