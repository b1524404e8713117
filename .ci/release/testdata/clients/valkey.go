package main

import (
	"github.com/valkey-io/valkey-go"

	valkeynode "github.com/lockstrategies/locks/clients/valkey"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
)

func connect(address string) (strategy.Strategy, error) {
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{address}})
	if err != nil {
		return nil, err
	}
	return fairqueue.New(valkeynode.New(client), strategy.Options{})
}
