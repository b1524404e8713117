// Tests the semaphore on a real server: the suite with one permit, and what only a semaphore does.
package semaphore_test

import (
	"testing"

	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestConformance(t *testing.T) { subjects.Run(t, "semaphore") }

func TestEveryWayToWait(t *testing.T) { subjects.RunWays(t, "semaphore") }
