package postgres_test

import (
	"context"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstrategies/locks/stores/postgres"
	"github.com/lockstrategies/locks/strategy"
)

func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	locks, err := postgres.New(pool, strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close() // and with it the connection that listens, not the pool
	if err := locks.Check(ctx); err != nil {
		log.Fatal(err) // it says what to do, such as to run the migration
	}

	lease, err := locks.NewLock("invoice/42").Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx) //nolint:errcheck // it ends with its TTL
}

// A write that comes too late does not commit.
func ExampleCheckTx() {
	var pool *pgxpool.Pool
	var locks strategy.Strategy // of New
	send := func(ctx context.Context, lease strategy.Lease) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := postgres.CheckTx(ctx, tx, lease); err != nil {
				return err // and roll back
			}
			_, err := tx.Exec(ctx, "update invoices set sent = now() where id = 42")
			return err // and commit: nobody else has had the lock until then
		})
	}
	if err := strategy.Do(context.Background(), locks.NewLock("invoice/42"), send); err != nil {
		log.Fatal(err)
	}
}

// The schema comes by your own migrations, or by Migrate.
func ExampleMigrate() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, "postgres://owner@localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx) //nolint:errcheck // it ends with the program
	if err := postgres.Migrate(ctx, conn); err != nil {
		log.Fatal(err)
	}
}
