// Code generated from clients/rueidis by generated_test.go. DO NOT EDIT.

package valkeynode_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/valkey-io/valkey-go"

	valkeynode "github.com/lockstrategies/locks/clients/valkey"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
)

func ExampleNew() {
	client, err := valkey.NewClient(valkey.MustParseURL(valkeynode.URL())) // redis://localhost:6379
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	node := valkeynode.New(client)
	locks, err := fairqueue.New(node, strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close() // and with it the node, before the client

	err = strategy.Do(context.Background(), locks.NewLock("invoice/42"), func(ctx context.Context, lease strategy.Lease) error {
		fmt.Println("only one at a time gets here")
		return nil // ctx ends if the lock is lost
	})
	fmt.Println("error:", err)
	// Output:
	// only one at a time gets here
	// error: <nil>
}
