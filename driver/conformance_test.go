// The suite judges the algorithm of the example.
package driver_test

import (
	"testing"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
)

func TestMain(m *testing.M) { locktest.Main(m, func(s *redistest.Server) { url = s.URL() }) }

// TestExampleConforms: an algorithm is a protocol and one entry in the list of subjects, and the suite then judges it on a
// real server. This entry stands here, because All has those of folders.
func TestExampleConforms(t *testing.T) {
	subjects.Variant{
		Name:    "example",
		Package: "driver",
		Summary: "a key with the holder's token, compared in scripts",
		Servers: 1,
		On:      func(nodes []driver.Node) driver.Protocol { return mutex{Node: nodes[0]} },
	}.Run(t)
}
