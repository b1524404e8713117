package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	_ "modernc.org/sqlite"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/docs/use/fencing"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/strategy"
)

// url is redis://localhost:6379 in your program; here it is the tests' server.
var url string

func TestMain(m *testing.M) { redistest.Main(m, func(s *redistest.Server) { url = s.URL() }) }

// Read and write with the fence, and stop when it is stale.
func Example() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	locks, err := luascript.New(redigonode.New(pool), strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	items := fencing.Redis{Pool: pool}

	deposit := func(ctx context.Context, lease strategy.Lease) error {
		h, err := fencing.Of(lease)
		if err != nil {
			return err
		}
		balance, err := items.Read(ctx, "account/7", h)
		if err != nil {
			return err // fencing.ErrStale: a later holder was quicker
		}
		return items.Write(ctx, "account/7", balance+"+10", h)
	}
	err = strategy.Do(context.Background(), locks.NewLock("account/7"), deposit)
	fmt.Println("error:", err)
	// Output:
	// error: <nil>
}

// overtaken takes a lock twice: the first holder is paused until its TTL is over.
func overtaken(ctx context.Context, name string) (paused, next fencing.Holder) {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	locks, err := luascript.New(redigonode.New(pool), strategy.Options{TTL: 1500 * time.Millisecond, OpTimeout: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	for _, h := range []*fencing.Holder{&paused, &next} {
		lease, err := locks.NewLock(name).Acquire(ctx) // the second waits for the TTL
		if err != nil {
			log.Fatal(err)
		}
		if *h, err = fencing.Of(lease); err != nil {
			log.Fatal(err)
		}
	}
	return paused, next
}

func ExampleSQL() {
	ctx := context.Background()
	paused, next := overtaken(ctx, "order/42") // two holds of one lock

	db, err := sql.Open("sqlite", "file:orders?mode=memory&cache=shared&_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, fencing.Schema); err != nil {
		log.Fatal(err)
	}
	orders := fencing.SQL{DB: db}

	_, err = orders.Read(ctx, "42", paused)
	fmt.Println("the first reads:", err)
	_, err = orders.Read(ctx, "42", next)
	fmt.Println("the next reads:", err)
	err = orders.Write(ctx, "42", "cancelled", paused)
	fmt.Println("the first is stale:", errors.Is(err, fencing.ErrStale))
	err = orders.Write(ctx, "42", "paid", next)
	fmt.Println("the next writes:", err)
	// Output:
	// the first reads: <nil>
	// the next reads: <nil>
	// the first is stale: true
	// the next writes: <nil>
}

func ExampleRedis() {
	ctx := context.Background()
	paused, next := overtaken(ctx, "order/43") // two holds of one lock

	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	orders := fencing.Redis{Pool: pool}

	_, err := orders.Read(ctx, "43", paused)
	fmt.Println("the first reads:", err)
	err = orders.Write(ctx, "43", "paid", next)
	fmt.Println("the next writes:", err)
	err = orders.Write(ctx, "43", "cancelled", paused)
	fmt.Println("the first is stale:", errors.Is(err, fencing.ErrStale))
	// Output:
	// the first reads: <nil>
	// the next writes: <nil>
	// the first is stale: true
}

func ExampleHTTP() {
	ctx := context.Background()
	paused, next := overtaken(ctx, "order/44") // two holds of one lock

	server := httptest.NewServer(fencing.NewHandler())
	defer server.Close()
	orders := fencing.HTTP{URL: server.URL, Client: http.DefaultClient}

	_, err := orders.Read(ctx, "44", paused)
	fmt.Println("the first reads:", err)
	err = orders.Write(ctx, "44", "paid", next)
	fmt.Println("the next writes:", err)
	err = orders.Write(ctx, "44", "cancelled", paused)
	fmt.Println("the first is stale:", errors.Is(err, fencing.ErrStale)) // it was answered 412
	// Output:
	// the first reads: <nil>
	// the next writes: <nil>
	// the first is stale: true
}
