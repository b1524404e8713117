package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// CheckTx makes sure that the lease holds its lock until tx has ended: a write of tx that comes too late cannot commit next to
// those of a later holder. Call it in the transaction that writes, on the database of the locks:
//
//	err = postgres.CheckTx(ctx, tx, lease)
//	if err != nil {
//		return err // roll back
//	}
//	… // write
//	return tx.Commit(ctx) // and then release the lock
//
// nil: the lease held the lock, and nobody else gets it before tx ends, however late that is, and though the lease may expire
// meanwhile. ErrLost: the lease does not hold the lock any more. After any error roll back.
//
// Make it the first statement of a transaction whose isolation is more than READ COMMITTED: such a transaction does not see
// a lock that was acquired after its first statement, and CheckTx then says ErrLost.
//
// A transaction that does not end keeps the lock from all others. The server can end it: idle_in_transaction_session_timeout.
func CheckTx(ctx context.Context, tx pgx.Tx, lease strategy.Lease) error {
	return Checker{}.CheckTx(ctx, tx, lease)
}

// CheckSQLTx is [CheckTx] for a transaction of package database/sql.
func CheckSQLTx(ctx context.Context, tx *sql.Tx, lease strategy.Lease) error {
	return Checker{}.CheckSQLTx(ctx, tx, lease)
}

// A Checker is [CheckTx] for locks with another schema or other keys than by default. The zero Checker has the defaults.
type Checker struct {
	Schema string                   // see [WithSchema]; empty: locks
	Key    func(name string) string // see [strategy.Options].Key; nil: strategy.DefaultKey
}

// CheckTx is the function [CheckTx].
func (c Checker) CheckTx(ctx context.Context, tx pgx.Tx, lease strategy.Lease) error {
	return c.check(lease, func(statement string, args ...any) interface{ Scan(...any) error } {
		return tx.QueryRow(ctx, statement, args...)
	})
}

// CheckSQLTx is the function [CheckSQLTx].
func (c Checker) CheckSQLTx(ctx context.Context, tx *sql.Tx, lease strategy.Lease) error {
	return c.check(lease, func(statement string, args ...any) interface{ Scan(...any) error } {
		return tx.QueryRowContext(ctx, statement, args...)
	})
}

func (c Checker) check(lease strategy.Lease, query func(string, ...any) interface{ Scan(...any) error }) error {
	if err := lease.Err(); err != nil {
		return err
	}
	fence, ok := lease.Fence()
	if !ok {
		return fmt.Errorf("locks: the lease of %q has no fence, so no transaction can check it: %w", lease.Name(), strategy.ErrUnsupported)
	}
	key := c.Key
	if key == nil {
		key = strategy.DefaultKey
	}
	s := settings{schema: cmp.Or(c.Schema, defaultSchema)}
	var held bool
	var holder []byte
	err := query(s.in("select * from locks.check_1($1, $2)"), []byte(key(lease.Name())), int64(fence)).Scan(&held, &holder)
	var refusal *pgconn.PgError
	switch {
	case errors.As(err, &refusal):
		return &strategy.ServerError{Node: "postgres", Kind: strategy.ErrRefused, Err: explained(s, err)}
	case err != nil:
		return &strategy.ServerError{Node: "postgres", Kind: strategy.ErrUnknown, Err: err}
	case !held:
		return lost(driver.Claim{Name: lease.Name()}, holder)
	}
	return lease.Err() // released meanwhile, it may be the next one's in this process
}
