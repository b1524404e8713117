package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// Check finds out whether the server is a primary, has the schema of this version, and lets the role do all that locks need;
// and, if Options.Wait demands it, whether notifications are heard.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	c := driver.Claim{Name: "check", Key: o.Key("check"), Due: time.Now().Add(o.OpTimeout)}
	if _, err := p.Inspect(ctx, c); err != nil { // a primary, the schema, the isolation level
		return err
	}
	missing, err := ask(ctx, p, c, "rights", nil, func(s *string) []any { return []any{s} })
	if err == nil && len(missing) > 0 {
		err = p.failed(strategy.ErrRefused, fmt.Errorf("the role lacks rights in the schema %s: %s: see postgres.Migration", p.settings.schema, strings.Join(missing, ", ")))
	}
	if err != nil || o.Wait != strategy.WaitNotification && o.Wait != strategy.WaitQueue {
		return err
	}
	return p.checkListening(ctx, c)
}

// checkListening sends a notification, and hears it.
func (p *protocol) checkListening(ctx context.Context, c driver.Claim) error {
	bounded, cancel := context.WithDeadlineCause(ctx, c.Due, timeup.Err)
	defer cancel()
	channel, heard := testChannel(), make(chan error, 1)
	stop, err := p.subscribe(bounded, channel, func(_ []byte, err error) {
		select {
		case heard <- err:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	if _, err := p.ask(ctx, c.Due, statement{step: "notify", args: []any{channel}, read: nothing}); err != nil {
		return err
	}
	select {
	case err = <-heard:
		return err
	case <-bounded.Done():
		return p.failed(strategy.ErrRefused, timeup.Before(errors.New("a notification does not come back"), context.Cause(bounded)))
	}
}

// nothing reads no rows.
func nothing(rows pgx.Rows) (any, error) {
	rows.Close()
	return nil, rows.Err()
}

// rightsOf is a statement that returns what the role may not do and locks need.
func rightsOf(s settings) string {
	var wanted []string
	for _, table := range []string{"lease", "queue", "undone", "timeline"} {
		for _, privilege := range []string{"select", "insert", "update", "delete"} {
			wanted = append(wanted, fmt.Sprintf("('%s on %s', has_table_privilege('%s.%s', '%[1]s'))", privilege, table, defaultSchema, table))
		}
	}
	for _, privilege := range []string{"usage", "update"} {
		wanted = append(wanted, fmt.Sprintf("('%s on fence', has_sequence_privilege('%s.fence', '%[1]s'))", privilege, defaultSchema))
	}
	return s.in("select w.name from (values " + strings.Join(wanted, ", ") + ") as w (name, there) where not w.there")
}
