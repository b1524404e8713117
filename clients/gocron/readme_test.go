// Tests that the examples run, each on an empty Redis, and that the README quotes them.
package gocronlocks_test

import (
	"bufio"
	"os"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/quotes"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// TestExamples reads what the examples print. (go test would run them on a server where the marks of a run before are
// still kept.)
func TestExamples(t *testing.T) {
	for name, example := range map[string]func(){"Locker": ExampleLocker, "Elector": ExampleElector} {
		t.Run(name, func(t *testing.T) {
			address, reported = redistest.Own(t, redistest.Config{}).Addr(), make(chan struct{})
			r, w, err := os.Pipe()
			redistest.Must(t, err)
			defer r.Close()
			lines := bufio.NewScanner(r)
			go func() {
				lines.Scan()
				close(reported)
			}()
			stdout := os.Stdout
			os.Stdout = w
			example()
			os.Stdout = stdout
			w.Close()
			if want := "one instance reports; its writes have a number: true"; lines.Text() != want {
				t.Errorf("it prints %q, want %q", lines.Text(), want)
			}
		})
	}
}

func TestReadmeQuotes(t *testing.T) {
	t.Parallel()
	from, err := quotes.Check("README.md")
	if err != nil {
		t.Error(err)
	}
	if from["example_test.go"] < 4 {
		t.Errorf("the README quotes %v, want four pieces of example_test.go", from)
	}
}
