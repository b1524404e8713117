// Servers for the tests of this package.
package node

import (
	"testing"

	"github.com/lockstrategies/locks/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
