package fencing

import (
	"context"
	"database/sql"
	"fmt"
)

// Schema is the table of a SQL store.
const Schema = `
CREATE TABLE IF NOT EXISTS items (
	id    TEXT PRIMARY KEY,
	value TEXT NOT NULL,
	fence BIGINT NOT NULL, -- the greatest that has touched the item, also to read
	owner TEXT NOT NULL    -- whose that was
)`

// touchItem is the rule. It changes a row, or none if the fence is stale.
var touchItem = `
INSERT INTO items (id, value, fence, owner) VALUES (?, '', ?, ?)
ON CONFLICT (id) DO UPDATE SET fence = excluded.fence, owner = excluded.owner
WHERE excluded.fence > items.fence
   OR excluded.fence = items.fence AND excluded.owner = items.owner`

// SQL keeps items in a table. Its statements are SQLite's and, but for the
// placeholders, PostgreSQL's.
type SQL struct{ DB *sql.DB }

// Read returns the value of id, "" if it has none. From now on earlier holders are
// refused.
func (s SQL) Read(ctx context.Context, id string, h Holder) (value string, err error) {
	err = s.touch(ctx, id, h, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT value FROM items WHERE id = ?`, id).Scan(&value)
	})
	return value, err
}

// Write sets the value of id. After any error but ErrStale, and that of a Holder which is
// none, nobody knows whether it took effect.
func (s SQL) Write(ctx context.Context, id, value string, h Holder) error {
	return s.touch(ctx, id, h, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE items SET value = ? WHERE id = ?`, value, id)
		return err
	})
}

// touch runs then in a transaction that began with the rule: that locks the row, so
// nobody comes between the check and what it allows. If h is stale it is ErrStale, and
// nothing has changed.
func (s SQL) touch(ctx context.Context, id string, h Holder, then func(*sql.Tx) error) error {
	if err := h.check(); err != nil {
		return err
	}
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit there is nothing to roll back
	touched, err := tx.ExecContext(ctx, touchItem, id, int64(h.Fence), h.Owner)
	if err != nil {
		return err
	}
	if n, err := touched.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return fmt.Errorf("%q, fence %d: %w", id, h.Fence, ErrStale)
	}
	if err := then(tx); err != nil {
		return err
	}
	return tx.Commit()
}
