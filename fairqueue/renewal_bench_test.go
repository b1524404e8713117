//go:build unix

package fairqueue_test

// Measures what the renewal of 10 000 locks costs client and server, against one script that renews them all.

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/strategy"
)

// The locks of BenchmarkRenewal are valid for 5 s.
const (
	keptAlive  = 10_000
	renewalTTL = 5 * time.Second
	renewalFor = 5 * time.Second // what is measured at a time: whole periods of everybody
)

// renewAll is the floor: one request renews all. No library does that, because the request keeps the
// server from everybody else meanwhile.
var renewAll = redis.NewScript(-1, `
for i, lock in ipairs(KEYS) do
  if redis.call('GET', lock) == ARGV[i] then
    redis.call('PEXPIRE', lock, ARGV[#KEYS + 1])
  end
end
return 1`)

// BenchmarkRenewal keeps 10 000 locks alive. An iteration takes turns, for some seconds each:
// one script that renews all of them every 2.5 s, and the library. The metrics: per lock
// goroutines and bytes of the heap; requests per second, and how long each keeps the server
// from others; and the processor time of client and server over that of the one script. A/A is that of the script against itself.
func BenchmarkRenewal(b *testing.B) {
	for _, l := range []struct {
		name string
		open func(pool *redis.Pool, o strategy.Options) (strategy.Strategy, error)
	}{
		{"fairqueue", func(pool *redis.Pool, o strategy.Options) (strategy.Strategy, error) {
			return fairqueue.New(redigonode.New(pool), o)
		}},
		{"reentrant", func(pool *redis.Pool, o strategy.Options) (strategy.Strategy, error) {
			return reentrant.New(redigonode.New(pool), o)
		}},
	} {
		b.Run(l.name, func(b *testing.B) { renewal(b, l.open) })
	}
}

func renewal(b *testing.B, open func(*redis.Pool, strategy.Options) (strategy.Strategy, error)) {
	s := redistest.Own(b, redistest.Config{})
	conn := s.Pool().Get() // before what is measured
	defer conn.Close()
	var ratios, same, requests, scripts []float64
	var m renewalCost
	for range b.N {
		one := withOneScript(b, conn)
		if again := withOneScript(b, conn); one > 0 {
			same = append(same, again.Seconds()/one.Seconds())
		}
		m = withLocks(b, s, conn, open)
		ratios = append(ratios, m.processor.Seconds()/one.Seconds())
		requests = append(requests, m.requests)
		scripts = append(scripts, m.script)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(m.goroutines, "goroutines/lock")
	b.ReportMetric(m.bytes, "B/lock")
	b.ReportMetric(median(requests), "requests/s")
	b.ReportMetric(median(scripts), "µs/script")
	b.ReportMetric(median(ratios), "÷one-script")
	b.ReportMetric(median(same), "÷A/A")
}

// withOneScript returns the processor time of client and server.
func withOneScript(b *testing.B, conn redis.Conn) time.Duration {
	args := make([]any, 0, 2*keptAlive+2)
	args = append(args, keptAlive)
	for i := range keptAlive {
		args = append(args, fmt.Sprintf("lock:{bench-%d}", i))
	}
	for i := range keptAlive {
		token := fmt.Sprintf("%036x", i)
		args = append(args, token)
		if err := conn.Send("SET", args[i+1], token, "PX", 60_000); err != nil {
			b.Fatal(err)
		}
	}
	args = append(args, renewalTTL.Milliseconds())
	must(b, conn, "") // reads the replies
	defer must(b, conn, "FLUSHALL")
	if _, err := renewAll.Do(conn, args...); err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	before := processorTime(b, conn)
	for range renewalFor / (2500 * time.Millisecond) {
		if _, err := renewAll.Do(conn, args...); err != nil {
			b.Fatal(err)
		}
		time.Sleep(2500 * time.Millisecond)
	}
	return processorTime(b, conn) - before
}

type renewalCost struct {
	goroutines, bytes, requests, script float64
	processor                           time.Duration
}

// withLocks holds the locks with the library.
func withLocks(b *testing.B, s *redistest.Server, conn redis.Conn, open func(*redis.Pool, strategy.Options) (strategy.Strategy, error)) (m renewalCost) {
	locks, err := open(s.Pool(), strategy.Options{TTL: renewalTTL})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := locks.Close(); err != nil {
			b.Errorf("Close() = %v, want nil", err)
		}
	}()
	warm, err := locks.NewLock("warm").Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	warm.Release(b.Context())
	leases := make([]strategy.Lease, keptAlive)
	heap, goroutines := heapInUse(), runtime.NumGoroutine()
	sideBySide(64, func(i int) error { // all at about one moment
		lease, err := locks.NewLock(fmt.Sprintf("bench-%d", i)).TryAcquire(b.Context())
		if err != nil {
			return err
		}
		leases[i] = lease
		return lease.KeepAlive(0)
	}, b)

	time.Sleep(renewalTTL)
	must(b, conn, "CONFIG", "RESETSTAT")
	before, start := processorTime(b, conn), time.Now()
	time.Sleep(renewalFor)
	m.processor = processorTime(b, conn) - before
	requests, script := scriptsRun(b, conn)
	m.requests, m.script = requests/time.Since(start).Seconds(), script
	m.goroutines = float64(runtime.NumGoroutine()-goroutines) / keptAlive
	m.bytes = float64(heapInUse()-heap) / keptAlive
	for _, lease := range leases {
		if err := lease.Err(); err != nil {
			b.Fatalf("Err() = %v, want nil: all are kept alive", err)
		}
	}
	sideBySide(64, func(i int) error { return leases[i].Release(context.Background()) }, b)
	return m
}

func sideBySide(callers int, f func(i int) error, b *testing.B) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < keptAlive; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // what pools held goes with the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func must(b *testing.B, conn redis.Conn, cmd string, args ...any) any {
	b.Helper()
	reply, err := conn.Do(cmd, args...)
	if err != nil {
		b.Fatal(err)
	}
	return reply
}

// processorTime is what this process and the server have used of it.
func processorTime(b *testing.B, conn redis.Conn) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	sum := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info(b, conn, "cpu", field), 64)
		if err != nil {
			b.Skip("the server does not tell its processor time:", err)
		}
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}

// scriptsRun counts the requests that renew, and says how many microseconds one took the
// server.
func scriptsRun(b *testing.B, conn redis.Conn) (n, each float64) {
	b.Helper()
	var took int
	if _, err := fmt.Sscanf(info(b, conn, "commandstats", "cmdstat_evalsha"), "calls=%g,usec=%d,usec_per_call=%g", &n, &took, &each); err != nil {
		b.Skip("the server does not count its commands:", err)
	}
	return n, each
}

func info(b *testing.B, conn redis.Conn, section, field string) string {
	b.Helper()
	text, err := redis.String(conn.Do("INFO", section))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			return value
		}
	}
	return ""
}
