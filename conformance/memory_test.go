package conformance

import (
	"os"
	"testing"
	"time"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// TestMain lets the mutants' test shorten the patience: it expects convictions, and
// need not be fair.
func TestMain(m *testing.M) {
	if d, err := time.ParseDuration(os.Getenv("CONFORMANCE_PATIENCE")); err == nil {
		usual.patience = d
	}
	os.Exit(m.Run())
}

// subject is a Memory as the suite sees it.
func (m *Memory) subject(name string) Subject {
	open := func(o strategy.Options) (strategy.Strategy, error) { return engine.New(m, o) }
	return Subject{
		Name:      name,
		Open:      open,
		OpenGated: func(o strategy.Options, g Gate) (strategy.Strategy, error) { return engine.New(m.Gated(g), o) },
		OpenSkewed: func(o strategy.Options, _ time.Duration) (strategy.Strategy, error) {
			return open(o) // a contender's clock is of no account
		},
		Evict:     m.Evict,
		Spoil:     m.Spoil,
		Leftovers: m.Leftovers,
		Reentrant: m.Reentrant,
		Fenced:    true,
		Fair:      true,
	}
}

func TestMemory(t *testing.T) {
	Run(t, (&Memory{}).subject("memory"))
	Run(t, (&Memory{Reentrant: true}).subject("reentrant"))
}
