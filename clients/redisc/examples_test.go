// The examples, on the cluster of the tests.
package rediscnode_test

import (
	"io"
	"os"
	"testing"

	rediscnode "github.com/lockstrategies/locks/clients/redisc"
)

// TestExample runs ExampleNew, which has no other way to a cluster, and reads what it prints.
func TestExample(t *testing.T) {
	startup = rediscnode.ClusterForTests(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	ExampleNew()
	os.Stdout = stdout
	w.Close()
	printed, err := io.ReadAll(r)
	if want := "only one at a time gets here\nerror: <nil>\n"; err != nil || string(printed) != want {
		t.Errorf("it prints %q (%v), want %q", printed, err, want)
	}
}
