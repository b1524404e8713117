package subjects

import (
	"context"
	"errors"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// Child is [conformance.Child] with all variants, on the servers that a Subject's ChildEnv names, and with others.
func Child(others ...conformance.Subject) bool {
	all := others
	for _, v := range All() {
		all = append(all, conformance.Subject{Name: v.Name, Open: func(o strategy.Options) (strategy.Strategy, error) {
			farm, servers, err := ParentsServers(context.Background())
			if err != nil {
				return nil, err
			}
			st, err := v.Subject(servers).Open(o)
			if err != nil {
				return nil, errors.Join(err, farm.Close())
			}
			return st, nil // the farm ends with this process: nothing in it is its own
		}})
	}
	return conformance.Child(all...)
}

// ParentsServers are those that a parent's environment gives to its child. Close the farm.
func ParentsServers(ctx context.Context) (*redistest.Farm, []*redistest.Server, error) {
	want, err := redistest.FromEnv()
	if err != nil {
		return nil, nil, err
	}
	want.Server = "" // it may be of what the parent has set aside
	farm, err := redistest.Open(ctx, want)
	if err != nil {
		return nil, nil, err
	}
	servers, err := farm.Nodes(ctx, len(want.Addrs))
	if err != nil {
		return nil, nil, errors.Join(err, farm.Close())
	}
	return farm, servers, nil
}
