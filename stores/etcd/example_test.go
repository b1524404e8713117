package etcd_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstrategies/locks/stores/etcd"
	"github.com/lockstrategies/locks/strategy"
)

func ExampleNew() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{"etcd-1:2379", "etcd-2:2379", "etcd-3:2379"},
		DialKeepAliveTime:    10 * time.Second, // a member that has vanished is left after 12 s
		DialKeepAliveTimeout: 2 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	locks, err := etcd.New(client, strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close() // not the client

	err = strategy.Do(context.Background(), locks.NewLock("invoice/42"), func(ctx context.Context, lease strategy.Lease) error {
		fence, _ := lease.Fence()
		fmt.Println("only one at a time gets here, and the next one has a greater number than", fence)
		return nil // ctx ends if the lock is lost
	})
	if err != nil {
		log.Print(err)
	}
}
