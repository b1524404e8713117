package goredisnode_test

// How a program in production makes its client: docs/use/connecting.md quotes this.

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	goredisnode "github.com/lockstrategies/locks/clients/goredis"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
)

// addr, user and password are redis.internal:6379 and so on in your program; here they are the tests' server.
func credentials() (addr, user, password string) {
	o, err := redis.ParseURL(goredisnode.URL)
	if err != nil {
		log.Fatal(err)
	}
	return o.Addr, o.Username, o.Password
}

// One server: time-outs, a user of its ACL, and a check at the start.
func ExampleNew_production() {
	addr, user, password := credentials()

	client := redis.NewClient(&redis.Options{
		Addr:                  addr, // redis.internal:6379
		Username:              user,
		Password:              password,
		DialTimeout:           time.Second,
		ReadTimeout:           time.Second,
		ContextTimeoutEnabled: true, // New demands it; NewDerived does not
	})
	defer client.Close()
	node := goredisnode.New(client)
	locks, err := fairqueue.New(node, strategy.Options{
		TTL:     10 * time.Second,
		MaxHold: 40 * time.Second, // longer than the longest work
		Label:   strategy.ThisProcess("").String(),
	})
	if err != nil {
		log.Fatal(err)
	}
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
	defer client.Close()
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
