package setnxgetset_test

import (
	"testing"

	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
)

func TestMain(m *testing.M) {
	redistest.Main(m, func(s *redistest.Server) {
		n, err := node.New(s.Pool())
		if err != nil {
			panic(err)
		}
		_, _ = s.URL(), n
	})
}

// TestConformance holds the variants to what every lock must do, and confirms their
// weaknesses.
func TestConformance(t *testing.T) { subjects.Run(t, "setnxgetset") }
