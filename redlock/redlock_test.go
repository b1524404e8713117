package redlock_test

import (
	"testing"

	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestConformance holds the strategy to what every lock must do.
func TestConformance(t *testing.T) { subjects.Run(t, "redlock") }
