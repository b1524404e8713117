package readme

import (
	"testing"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

const address = "localhost:6379"

// mylock stands for the reader's own package.
var mylock struct {
	On func(address string) driver.Protocol
}

// TestConformance is a test of the reader's.
func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Subject{
		Name: "mylock",
		Open: func(o strategy.Options) (strategy.Strategy, error) {
			return engine.New(mylock.On(address), o)
		},
	})
}
