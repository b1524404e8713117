// Package postgres is a lock in PostgreSQL.
package postgres
