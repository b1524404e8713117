// Measures what a lock costs that nobody else wants, and what it costs where many wait for it.
package reentrant_test

import (
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/strategy"
)

// BenchmarkPair acquires a lock and releases it.
func BenchmarkPair(b *testing.B) { measure(b, 1) }

// BenchmarkHandOver has 64 callers acquire one lock and release it at once: nearly each gets it by adoption.
func BenchmarkHandOver(b *testing.B) { measure(b, 64) }

// measure divides b.N acquisitions among callers. The metrics, for each acquisition: its time over that of a PING; the
// commands that the server executed, EVALSHA included; and for how many µs scripts kept it busy.
func measure(b *testing.B, callers int) {
	s := redistest.Own(b, redistest.Config{})
	locks, err := reentrant.New(redigonode.New(s.Pool()), strategy.Options{})
	locktest.Opened(b, locks, err)
	acquire := func(n int) {
		var left atomic.Int64
		left.Store(int64(n))
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for l := locks.NewLock("a"); left.Add(-1) >= 0; {
					lease, err := l.Acquire(b.Context())
					if err == nil {
						err = lease.Release(b.Context())
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	acquire(20 * callers) // dials, and loads the scripts
	ping := pingTime(b, s)
	commands, busy := served(b, s)
	b.ReportAllocs()
	b.ResetTimer()
	acquire(b.N)
	b.StopTimer()
	after, busyAfter := served(b, s)
	ping = (ping + pingTime(b, s)) / 2
	n := float64(b.N)
	b.ReportMetric(float64(b.Elapsed())/n/float64(ping), "÷PING")
	b.ReportMetric(float64(ping)/1e3, "PING-µs")
	b.ReportMetric((after-commands)/n, "commands/op")
	b.ReportMetric((busyAfter-busy)/n, "server-µs/op")
}

// pingTime is the median of some.
func pingTime(b *testing.B, s *redistest.Server) time.Duration {
	conn := s.Pool().Get()
	defer conn.Close()
	var took []time.Duration
	for range 2000 {
		begin := time.Now()
		if _, err := conn.Do("PING"); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

var commandStats = regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+),usec=(\d+)`)

// served returns how many commands the server has executed, and for how many µs scripts have kept it busy.
func served(b *testing.B, s *redistest.Server) (commands, busy float64) {
	info, err := redis.String(redistest.Do(b, s, "INFO", "commandstats"), nil)
	if err != nil {
		b.Skipf("NOT PROVEN: what a lock costs the server: %v", err)
	}
	for _, stat := range commandStats.FindAllStringSubmatch(info, -1) {
		calls, _ := strconv.ParseFloat(stat[2], 64)
		us, _ := strconv.ParseFloat(stat[3], 64)
		if stat[1] != "info" && stat[1] != "ping" {
			commands += calls
		}
		if stat[1] == "evalsha" {
			busy += us
		}
	}
	return commands, busy
}
