package goredisnode_test

// How a program in production makes its client: docs/use/connecting.md quotes this.

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	goredisnode "github.com/lockstrategies/locks/clients/goredis"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
)

// open makes the client and the locks, and connects to nothing yet.
func open() (strategy.Strategy, io.Closer, error) {
	redis.SetLogger(&logging.VoidLogger{}) // go-redis itself writes nothing
	client := redis.NewClient(&redis.Options{
		Addr:                  os.Getenv("REDIS_ADDR"), // redis.internal:6379
		Username:              os.Getenv("REDIS_USER"),
		Password:              os.Getenv("REDIS_PASSWORD"),
		DialTimeout:           time.Second,
		ReadTimeout:           time.Second,
		ContextTimeoutEnabled: true, // New demands it; NewDerived does not
	})
	locks, err := fairqueue.New(goredisnode.New(client), strategy.Options{
		TTL:     10 * time.Second,
		MaxHold: 40 * time.Second, // longer than the longest work
		Label:   strategy.ThisProcess("").String(),
	})
	return locks, client, err
}

// credentials has the environment name the tests' server.
func credentials() {
	o, err := redis.ParseURL(goredisnode.URL)
	if err != nil {
		log.Fatal(err)
	}
	os.Setenv("REDIS_ADDR", o.Addr)
	os.Setenv("REDIS_USER", o.Username)
	os.Setenv("REDIS_PASSWORD", o.Password)
}

// One server: time-outs, a user of its ACL, and a check at the start.
func ExampleNew_production() {
	credentials()

	locks, client, err := open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	defer locks.Close() // before the client

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := locks.Check(ctx); err != nil {
		log.Fatal(err) // the error says what to change
	}
	fmt.Println("ready")
	// Output: ready
}

// Sentinels name the master. The server and the Sentinels demand TLS and passwords.
func ExampleNew_failover() {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:            "orders",
		SentinelAddrs:         []string{"sentinel-1.internal:26379", "sentinel-2.internal:26379", "sentinel-3.internal:26379"},
		SentinelPassword:      os.Getenv("SENTINEL_PASSWORD"),
		Username:              "orders",
		Password:              os.Getenv("REDIS_PASSWORD"),
		TLSConfig:             &tls.Config{MinVersion: tls.VersionTLS12}, // RootCAs and Certificates of your own: see below
		DialTimeout:           time.Second,
		ContextTimeoutEnabled: true,
	})
	locks, err := fairqueue.New(goredisnode.New(client), strategy.Options{
		TTL:          20 * time.Second, // half of it is longer than a fail-over, so holders outlast that
		RetryOnError: true,             // and so do waiters
		Acks:         strategy.Acks{Replicas: 1},
		MaxHold:      40 * time.Second,
		Label:        strategy.ThisProcess("").String(),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	defer locks.Close()
}

// quiet receives what go-redis itself would write to the standard error.
type quiet struct{ *slog.Logger }

func (q quiet) Printf(ctx context.Context, format string, v ...any) {
	q.DebugContext(ctx, fmt.Sprintf(format, v...))
}

func ExampleNew_quiet() {
	redis.SetLogger(quiet{slog.Default()}) // for all clients of the process
	// Output:
}
