// Servers for the tests of this package.
package redigonode

import (
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
