package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/gomodule/redigo/redis"

	gocronlocks "github.com/lockstrategies/locks/clients/gocron"
	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
)

func main() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", os.Args[1]) }}
	locks, err := fairqueue.New(redigonode.New(pool), strategy.Options{})
	check(err)
	defer locks.Close()
	locker, err := gocronlocks.NewLocker(locks, gocronlocks.Options{})
	check(err)
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	check(err)
	ran := make(chan struct{})
	_, err = scheduler.NewJob(
		gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
		locker.Task(func(context.Context, strategy.Lease) error {
			fmt.Println("only one process at a time gets here")
			close(ran)
			return nil
		}),
		gocron.WithName("report"))
	check(err)
	scheduler.Start()
	select {
	case <-ran:
	case <-time.After(time.Minute):
		log.Fatal("the job did not run")
	}
	check(scheduler.Shutdown())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
