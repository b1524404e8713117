package rediscnode_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"

	rediscnode "github.com/lockstrategies/locks/clients/redisc"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
)

// startup is []string{"redis-0:6379", "redis-1:6379", "redis-2:6379"} in your program; here it is
// the tests' cluster.
var startup []string

// The settings are a redisc.Cluster's, which may be the one that the program has anyway.
func ExampleNew() {
	cluster := &redisc.Cluster{
		StartupNodes: startup,
		DialOptions:  []redis.DialOption{redis.DialConnectTimeout(time.Second)}, // and user, password, TLS
	}
	defer cluster.Close()
	node := rediscnode.New(cluster)
	locks, err := fairqueue.New(node, strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close() // and the node with it

	err = strategy.Do(context.Background(), locks.NewLock("invoice/42"), func(ctx context.Context, lease strategy.Lease) error {
		fmt.Println("only one at a time gets here")
		return nil // ctx ends if the lock is lost
	})
	fmt.Println("error:", err)
}
