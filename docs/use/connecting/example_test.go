package connecting

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
)

// addr is redis.internal:6379 in your program, and so on; here it is the tests' server.
var addr, user, password string

// One server, as a user of its ACL.
func ExamplePool() {
	pool := Pool("tcp", addr, redis.DialUsername(user), redis.DialPassword(password))
	defer pool.Close()
	locks, err := fairqueue.New(redigonode.New(pool), strategy.Options{TTL: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := locks.Check(ctx); err != nil {
		log.Fatal(err) // out of reach, a replica, set up to evict keys; the error says which
	}
	fmt.Println("ready")
	// Output:
	// ready
}

func ExamplePool_unix() {
	pool := Pool("unix", "/run/redis/redis.sock")
	defer pool.Close()
}

func ExampleTLS() {
	secure, err := TLS("/etc/app/redis-ca.pem", "/etc/app/redis.pem", "/etc/app/redis.key")
	if err != nil {
		log.Fatal(err)
	}
	pool := Pool("tcp", "redis.internal:6380", append(secure,
		redis.DialUsername("orders"), redis.DialPassword(os.Getenv("REDIS_PASSWORD")))...)
	defer pool.Close()
}

func ExampleSentinel() {
	secret := redis.DialPassword(os.Getenv("REDIS_PASSWORD"))
	pool := Sentinel{
		Addrs:  []string{"sentinel-1.internal:26379", "sentinel-2.internal:26379", "sentinel-3.internal:26379"},
		Master: "orders",
		Server: []redis.DialOption{redis.DialUsername("orders"), secret},
	}.Pool()
	defer pool.Close()
	locks, err := fairqueue.New(redigonode.New(pool), strategy.Options{TTL: time.Minute, RetryOnError: true, Acks: strategy.Acks{Replicas: 1}})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
}
