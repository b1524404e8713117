package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstrategies/locks/stores/postgres"
	"github.com/lockstrategies/locks/strategy"
)

func connect(address string) (strategy.Strategy, error) {
	pool, err := pgxpool.New(context.Background(), address)
	if err != nil {
		return nil, err
	}
	err = pool.AcquireFunc(context.Background(), func(c *pgxpool.Conn) error { return postgres.Migrate(context.Background(), c.Conn()) })
	if err != nil {
		return nil, err
	}
	return postgres.New(pool, strategy.Options{})
}
