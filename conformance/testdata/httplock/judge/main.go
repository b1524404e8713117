// Judge prints what httplock guarantees: the suite as a program uses it, with child
// processes that are this program again.
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"example.com/httplock"
	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

func main() {
	url := os.Getenv("HTTPLOCK_URL")
	if url == "" {
		server := httptest.NewServer(httplock.NewServer())
		defer server.Close()
		url = server.URL
	}
	subject := conformance.Subject{
		Name: "httplock",
		Open: func(o strategy.Options) (strategy.Strategy, error) {
			return engine.New(httplock.On(url, &http.Transport{}), o)
		},
		ChildEnv:  []string{"HTTPLOCK_URL=" + url},
		ChildArgs: []string{"as", "a", "child"}, // what main does not look at
		Fenced:    true,
	}
	if conformance.Child(subject) {
		return
	}
	for _, p := range conformance.Properties() {
		switch p.Name {
		case "Exclusive", "Processes", "HolderKilled":
			r := conformance.Check(context.Background(), subject, p)
			fmt.Printf("%s: %s\n", p.Name, r.Status)
			if r.Status == conformance.Broken {
				fmt.Println(r)
			}
		}
	}
}
