package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstrategies/locks/driver"
)

// listTime bounds List.
const listTime = 10 * time.Second

// List returns the keys of all locks that somebody holds, sorted: with [strategy.DefaultKey] that is lock:{name} for each. Inspect
// says who holds one. A lock that begins or ends meanwhile may be missing. Of the options it knows [WithSchema]. It ends after
// 10 s at the latest. An error of the server is a *[strategy.ServerError]; a standby refuses.
func List(ctx context.Context, pool *pgxpool.Pool, options ...Option) (keys []string, err error) {
	p := newProtocol(pool, settingsOf(options))
	c := driver.Claim{Due: time.Now().Add(listTime)}
	found, err := ask(ctx, p, c, "list", []any{patience(c.Due)}, func(key *[]byte) []any { return []any{key} })
	for _, key := range found {
		if key != nil { // no lock is held
			keys = append(keys, string(key))
		}
	}
	return keys, err
}
