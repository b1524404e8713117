package gocronlocks_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	gocronlocks "github.com/lockstrategies/locks/clients/gocron"
	goredisnode "github.com/lockstrategies/locks/clients/goredis"
	"github.com/lockstrategies/locks/election"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
)

// address is localhost:6379 in your program; here it is of a server of the tests.
var address string

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// connect makes the locks, once for each process.
func connect() strategy.Strategy {
	client := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true})
	node := goredisnode.New(client)
	locks, err := fairqueue.New(node, strategy.Options{
		TTL:   10 * time.Second, // of a hold whose process has died; it is renewed while the job runs
		Label: strategy.ThisProcess("").String(),
	})
	check(err)
	check(locks.Check(context.Background())) // the server answers, and can be relied on
	return locks
}

// A Locker lets one of all instances run each tick of each job.
func ExampleLocker() {
	locks := connect()
	defer locks.Close()

	locker, err := gocronlocks.NewLocker(locks, gocronlocks.Options{})
	check(err)
	s, err := gocron.NewScheduler(
		gocron.WithDistributedLocker(locker),
		gocron.WithLocation(time.UTC), // the same ticks on all instances
	)
	check(err)
	check(locker.KeyPerTick(s, time.Hour)) // longer than clocks differ, and than an instance may be late

	_, err = s.NewJob(gocron.CronJob("0 3 * * *", false),
		locker.Task(report), // instead of gocron.NewTask(report)
		gocron.WithName("report"),
		gocron.WithEventListeners(gocron.AfterLockError(skipped)),
	)
	check(err)

	// Each instance counts a minute from its own start, so there are no common ticks: AtLeast, for this job alone.
	minutely, err := gocronlocks.NewLocker(locks, gocronlocks.Options{AtLeast: 50 * time.Second})
	check(err)
	_, err = s.NewJob(gocron.DurationJob(time.Minute),
		minutely.Task(report),
		gocron.WithName("minutely"),
		gocron.WithDistributedJobLocker(minutely), // instead of the scheduler's
	)
	check(err)
	s.Start()

	// By hand, now: the hold is the same, so it does not overlap with a run of the schedule.
	check(strategy.Do(context.Background(), locks.NewLock("report"), report))
	<-reported
	check(s.Shutdown()) // before locks.Close
}

func report(ctx context.Context, lease strategy.Lease) error {
	_, numbered := lease.Fence()
	fmt.Println("one instance reports; its writes have a number:", numbered)
	return context.Cause(ctx) // ctx ends if the lock is lost: stop then
}

func skipped(_ uuid.UUID, job string, err error) {
	if !errors.Is(err, strategy.ErrHeld) { // another instance runs it, or has run it: that is the rule
		log.Printf("%s does not run: %v", job, err)
	}
}

// reported is closed when an example has printed its line.
var reported chan struct{}

// An Elector lets the leader run all jobs.
func ExampleElector() {
	locks := connect()
	defer locks.Close()

	elector := gocronlocks.NewElector(election.New(locks, "scheduler"))
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	check(err)
	_, err = s.NewJob(gocron.DurationJob(50*time.Millisecond), elector.Task(report), gocron.WithLimitedRuns(1))
	check(err)
	s.Start()

	<-reported
	check(s.Shutdown())
	elector.Close() // resigns; before locks.Close
}
