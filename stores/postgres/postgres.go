package postgres

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// New returns the strategy on a pool. It does no I/O: see [strategy.Strategy.Check]. Close closes the connection that listens;
// the pool stays the caller's.
func New(pool *pgxpool.Pool, o strategy.Options, options ...Option) (strategy.Strategy, error) {
	return engine.New(On(pool, options...), o)
}

// On returns the algorithm alone, for authors of decorators and for tests.
func On(pool *pgxpool.Pool, options ...Option) driver.Protocol {
	return newProtocol(pool, settingsOf(options))
}

// An Option is a setting that only this algorithm has.
type Option func(*settings)

// WithSchema names the schema of the tables and functions; without it, the schema is "locks".
func WithSchema(name string) Option {
	return func(s *settings) {
		s.schema = name
		if name == "" || len(name) > mostSchema {
			s.fail(fmt.Errorf("locks: WithSchema(%q): allowed are 1 to %d bytes", name, mostSchema))
		}
	}
}

// mostSchema is the length to which PostgreSQL cuts names.
const mostSchema = 63

// WithListener gives the connection that listens another configuration than that of the pool: for a pool that leads to a
// pooler in transaction mode, which does not pass notifications on. It leads to the same database, past the pooler.
func WithListener(config *pgx.ConnConfig) Option {
	return func(s *settings) {
		if config == nil {
			s.fail(errors.New("locks: WithListener(nil): allowed is what pgx.ParseConfig returned"))
			return
		}
		s.listener = config.Copy()
	}
}

// WithSynchronousCommit sets synchronous_commit for each step: "off", "local", "remote_write", "on" or "remote_apply". Without it,
// each step has that of its session. See the package documentation, "Durability".
func WithSynchronousCommit(level string) Option {
	return func(s *settings) {
		s.durability = level
		if levels := []string{"off", "local", "remote_write", "on", "remote_apply"}; !slices.Contains(levels, level) {
			s.fail(fmt.Errorf("locks: WithSynchronousCommit(%q): allowed are %q", level, levels))
		}
	}
}

type settings struct {
	schema     string
	listener   *pgx.ConnConfig // nil: as the pool's
	durability string          // synchronous_commit; empty: the session's
	fault      error
}

// fail notes what is wrong with an option; the first word counts.
func (s *settings) fail(err error) {
	if s.fault == nil {
		s.fault = err
	}
}

func settingsOf(options []Option) settings {
	s := settings{schema: defaultSchema}
	if err := driver.Apply(&s, options); err != nil {
		s.fail(err)
	}
	return s
}

// protocol is the algorithm on one database.
type protocol struct {
	database
	settings settings
	names    *names
	acquires atomic.Uint64
}

var _ interface {
	driver.Protocol
	driver.Queuer
	driver.BulkExtender
	driver.Prober
	driver.Validator
	io.Closer
} = (*protocol)(nil)

func newProtocol(pool *pgxpool.Pool, s settings) *protocol {
	if pool == nil {
		s.fail(errors.New("locks: the pool is nil: allowed is what pgxpool.New returned"))
	}
	p := &protocol{settings: s, names: newNames(s.schema)}
	if p.database = (unusable{s.fault}); s.fault == nil {
		p.database = newServer(pool, s)
	}
	return p
}

// Validate reports what is wrong with the pool and the options of New.
func (p *protocol) Validate(strategy.Options) error { return p.settings.fault }
