// A first lock, as a consumer writes it. A file next to this one has connect, on one of the clients.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

func main() {
	locks, err := connect(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	err = strategy.DoWithin(context.Background(), locks.NewLock("invoice/42"), time.Minute, func(context.Context, strategy.Lease) error {
		fmt.Println("only one process at a time gets here")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
