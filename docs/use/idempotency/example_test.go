package idempotency_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"google.golang.org/grpc"

	"github.com/lockstrategies/locks/docs/use/idempotency"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

func createPayment(w http.ResponseWriter, r *http.Request) {
	fence, _ := idempotency.LeaseFrom(r.Context()).Fence()
	fmt.Println("pays, with a fence:", fence > 0)
	w.WriteHeader(http.StatusCreated)
}

// In production locks come from fairqueue.New(node, …), and answers is a fencing.Redis{Pool: pool} or a fencing.SQL.
func Example() {
	var server lockstest.Memory
	locks, err := engine.New(&server, strategy.Options{MaxHold: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	answers := inMemory()

	once := &idempotency.Once{Locks: locks, Answers: answers, Wait: 2 * time.Second}
	user := func(r *http.Request) string { return r.Header.Get("X-User") } // as your authentication knows it
	mux := http.NewServeMux()
	mux.Handle("POST /payments", once.Handler(user, http.HandlerFunc(createPayment)))

	// And for gRPC:
	peer := func(ctx context.Context) string { return "" } // all callers are one
	_ = grpc.NewServer(grpc.ChainUnaryInterceptor(once.Unary(peer, "/bank.Payments/Create")))

	fmt.Println(post(mux).Code)
	fmt.Println(post(mux).Code, "again")
	// Output:
	// pays, with a fence: true
	// 201
	// 201 again
}
