package subjects

import "slices"

// Compared are the variants that are worth a column next to the others.
func Compared() []Variant {
	return slices.DeleteFunc(All(), func(v Variant) bool { return v.Aside })
}

// Most is how many servers the most demanding variant takes.
func Most(variants []Variant) int {
	n := 0
	for _, v := range variants {
		n = max(n, v.Servers)
	}
	return n
}
