// The program that the README shows runs.
package main

import (
	"testing"

	"github.com/lockstrategies/locks/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m, func(s *redistest.Server) { address = s.Addr() })
}

func Example() {
	main()
	// Output: only one process at a time gets here
}
