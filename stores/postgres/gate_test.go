package postgres

import (
	"context"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
)

// gated is a database behind a gate of the suite.
type gated struct {
	database
	gate driver.Node
}

func behind(d database, g conformance.Gate) database {
	return &gated{d, conformance.GateNode(passage{database: d}, g)}
}

func (g *gated) ask(ctx context.Context, due time.Time, r statement) (any, error) {
	return g.gate.Eval(ctx, due, driver.NewScript(r.step, ""), []string{r.key}, r)
}

func (g *gated) subscribe(ctx context.Context, channel string, fn func([]byte, error)) (stop func(), err error) {
	return g.gate.Subscribe(ctx, channel, fn)
}

// passage is what the gate leads to.
type passage struct {
	driver.Node
	database database
}

func (p passage) Name() string  { return "postgres" }
func (p passage) Ordered() bool { return false }

func (p passage) Eval(ctx context.Context, due time.Time, _ *driver.Script, _ []string, args ...any) (any, error) {
	return p.database.ask(ctx, due, args[0].(statement))
}

func (p passage) Subscribe(ctx context.Context, channel string, fn func([]byte, error)) (stop func(), err error) {
	return p.database.subscribe(ctx, channel, fn)
}
