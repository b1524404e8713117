package locktest

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// BenchmarkInspect measures for how long Inspect keeps the server busy, next to so many members of a lock that several
// may hold. member is what they begin with.
func BenchmarkInspect(b *testing.B, member string, open func(*redistest.Server) (strategy.Strategy, error)) {
	for _, held := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprint(held), func(b *testing.B) {
			s := redistest.Own(b, redistest.Config{})
			locks, err := open(s)
			if err != nil {
				b.Fatal(err)
			}
			defer locks.Close()
			const fill = `local now = redis.call('TIME')[1] * 1000
				for i = 1, tonumber(ARGV[1]) do redis.call('ZADD', KEYS[1], now + 3600000 + i, ARGV[2] .. 'token-' .. i) end
				redis.call('PEXPIRE', KEYS[1], 7200000)`
			redistest.Do(b, s, "EVAL", fill, 1, strategy.DefaultKey("a"), held, member)
			busy := func() int64 { // µs in scripts by their hash
				info, err := redis.String(redistest.Do(b, s, "INFO", "commandstats"), nil)
				us := regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`).FindStringSubmatch(info)
				if err != nil || us == nil {
					b.Skipf("NOT PROVEN: what Inspect costs the server: %v", err)
				}
				n, _ := strconv.ParseInt(us[1], 10, 64)
				return n
			}
			look := func() {
				if info, err := locks.Inspect(b.Context(), "a"); err != nil || info.Holds != held {
					b.Fatalf("Inspect() = %+v, %v, want %d holds", info, err, held)
				}
			}
			look() // the script is known then
			look()
			before := busy()
			for b.Loop() {
				look()
			}
			b.ReportMetric(float64(busy()-before)/float64(b.N), "server-µs/op")
		})
	}
}
