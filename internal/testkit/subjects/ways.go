package subjects

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// groups are those of the properties that may depend on how contenders wait.
var groups = []string{"exclusion", "racing", "waiting", "handing over", "re-entry", "sharing", "reading and writing", "closing"}

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
			open, gated, permits, both := s.Open, s.OpenGated, s.OpenPermits, s.OpenRW
			s.Open = func(o strategy.Options) (strategy.Strategy, error) { return open(in(o)) }
			s.OpenGated = func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) { return gated(in(o), g) }
			if permits != nil {
				s.OpenPermits = func(n int, o strategy.Options) (strategy.Semaphore, error) { return permits(n, in(o)) }
			}
			if both != nil {
				s.OpenRW = func(o strategy.Options) (strategy.ReadWriter, error) { return both(in(o)) }
			}
			for _, p := range conformance.Properties() {
				if !slices.Contains(groups, p.Group) {
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
