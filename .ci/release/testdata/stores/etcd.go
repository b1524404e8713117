package main

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstrategies/locks/stores/etcd"
	"github.com/lockstrategies/locks/strategy"
)

func connect(address string) (strategy.Strategy, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}})
	if err != nil {
		return nil, err
	}
	return etcd.New(client, strategy.Options{})
}
