package main

import (
	"github.com/redis/rueidis"

	rueidisnode "github.com/lockstrategies/locks/clients/rueidis"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
)

func connect(address string) (strategy.Strategy, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}})
	if err != nil {
		return nil, err
	}
	return fairqueue.New(rueidisnode.New(client), strategy.Options{})
}
