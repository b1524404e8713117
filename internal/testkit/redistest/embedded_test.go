package redistest

// Tests what the embedded server needs corrected in it.

import (
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// TestEmbeddedKeepsEveryTTL: a key must not lose the time that had gone by before it
// was set, or a lock would be free before its holder's deadline.
func TestEmbeddedKeepsEveryTTL(t *testing.T) {
	f, err := Open(t.Context(), Want{Kind: Embedded})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := f.Start(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := s.Pool().Get()
	defer c.Close()
	const ttl = 3 * time.Millisecond
	for i := range 100 {
		key := fmt.Sprint("key ", i)
		asked := time.Now()
		if _, err := c.Do("SET", key, "v", "PX", ttl.Milliseconds()); err != nil {
			t.Fatal(err)
		}
		for limit := asked.Add(10 * time.Second); ; {
			there, err := redis.Bool(c.Do("EXISTS", key))
			if err != nil {
				t.Fatal(err)
			}
			if !there {
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("a key with a TTL of %v is there after 10 s, want it gone", ttl)
			}
		}
		if lived := time.Since(asked); lived < ttl {
			t.Fatalf("a key lived for %v at most, want its TTL of %v", lived, ttl)
		}
	}
}
