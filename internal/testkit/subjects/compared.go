package subjects

import (
	"context"
	"slices"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// Compared are the variants that are worth a column next to the others.
func Compared() []Variant {
	return slices.DeleteFunc(All(), func(v Variant) bool { return v.Aside })
}

// ComparedOn are those, and those whose Commands all the servers know.
func ComparedOn(ctx context.Context, servers []*redistest.Server) (compared []Variant, err error) {
	for _, v := range All() {
		known := !v.Aside
		if len(v.Commands) > 0 {
			if known, err = v.Known(ctx, servers); err != nil {
				return nil, err
			}
		}
		if known {
			compared = append(compared, v)
		}
	}
	return compared, nil
}

// Known reports whether all the servers know the Commands.
func (v Variant) Known(ctx context.Context, servers []*redistest.Server) (bool, error) {
	for _, s := range servers {
		if len(v.Commands) == 0 {
			break
		}
		if known, err := s.Knows(ctx, v.Commands...); err != nil || !known {
			return false, err
		}
	}
	return true, nil
}

// Most is how many servers the most demanding variant takes.
func Most(variants []Variant) int {
	n := 0
	for _, v := range variants {
		n = max(n, v.Servers)
	}
	return n
}
