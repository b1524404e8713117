package subjects

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// RunWays holds what may depend on how contenders wait, on the main variant of a package,
// for each way to wait that it has besides the best.
func RunWays(t *testing.T, pkg string) {
	t.Helper()
	i := slices.IndexFunc(All(), func(v Variant) bool { return v.Name == pkg })
	v := All()[i]
	servers, err := v.Farm(t).Nodes(t.Context(), v.Servers)
	redistest.Must(t, err)
	for _, way := range []strategy.Options{
		{Wait: strategy.WaitPoll}, {Wait: strategy.WaitNotification}, {NoHandOver: true},
	} {
		t.Run(fmt.Sprintf("%v, hand-over %t", way.Wait, !way.NoHandOver), func(t *testing.T) {
			s := v.Subject(servers)
			s.Fair = s.Fair && way.Wait == strategy.WaitBest
			in := func(o strategy.Options) strategy.Options {
				if o.Wait == strategy.WaitBest {
					o.Wait = way.Wait
				}
				o.NoHandOver = way.NoHandOver
				return o
			}
			open, gated := s.Open, s.OpenGated
			s.Open = func(o strategy.Options) (strategy.Strategy, error) { return waitsSo(in)(open(in(o))) }
			s.OpenGated = func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
				return waitsSo(in)(gated(in(o), g))
			}
			for _, p := range conformance.Properties() {
				if !slices.Contains([]string{"exclusion", "racing", "waiting", "handing over", "re-entry", "closing"}, p.Group) {
					continue
				}
				t.Run(p.Name, func(t *testing.T) {
					if !p.Alone {
						t.Parallel()
					}
					if r := conformance.Check(t.Context(), s, p); r.Status != conformance.Kept && r.Status != conformance.Skipped {
						t.Error(r)
					}
				})
			}
		})
	}
}

// waitsSo makes strategies whose With keeps the way to wait.
func waitsSo(in func(strategy.Options) strategy.Options) func(strategy.Strategy, error) (strategy.Strategy, error) {
	return func(s strategy.Strategy, err error) (strategy.Strategy, error) {
		if err != nil {
			return nil, err
		}
		return soWaiting{s, in}, nil
	}
}

type soWaiting struct {
	strategy.Strategy
	in func(strategy.Options) strategy.Options
}

func (s soWaiting) With(change func(*strategy.Options)) (strategy.Strategy, error) {
	return waitsSo(s.in)(s.Strategy.With(func(o *strategy.Options) {
		change(o)
		*o = s.in(*o)
	}))
}
