package httplock

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// urlVar hands the server down to child processes.
const urlVar = "HTTPLOCK_URL"

func TestConformance(t *testing.T) {
	t.Parallel()
	url := os.Getenv(urlVar)
	if url == "" {
		server := httptest.NewServer(NewServer())
		t.Cleanup(server.Close) // parallel subtests go on when this function has returned
		url = server.URL
	}
	admin := On(url, &http.Transport{})
	conformance.Run(t, conformance.Subject{
		Name: "httplock",
		Open: func(o strategy.Options) (strategy.Strategy, error) {
			return engine.New(On(url, &http.Transport{}), o)
		},
		OpenGated: func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
			client := On(url, &http.Transport{})
			client.http.Transport = gated{client.http.Transport.(*http.Transport), g}
			return engine.New(client, o)
		},
		Evict: func(ctx context.Context, k string) error {
			_, err := admin.ask(ctx, "evict", driver.Claim{Key: k}, "")
			return err
		},
		Leftovers: func(ctx context.Context, k string) ([]string, error) {
			info, err := admin.Inspect(ctx, driver.Claim{Key: k})
			if info.Held {
				return []string{"lock of " + info.Token}, err
			}
			return nil, err
		},
		ChildEnv: []string{urlVar + "=" + url},
		Fenced:   true,
	})
}

// gated is a transport behind a gate.
type gated struct {
	*http.Transport
	gate conformance.Gate
}

// RoundTrip lets the caller go with its context. A request that the gate sends later takes effect all the same.
func (t gated) RoundTrip(r *http.Request) (*http.Response, error) {
	type reply struct {
		response *http.Response
		err      error
	}
	replies := make(chan reply, 1)
	late := r.Clone(context.WithoutCancel(r.Context()))
	late.Body, _ = r.GetBody()
	go func() {
		a := reply{err: errors.New("the gate did not let it pass")}
		t.gate(r.URL.Path, func() { a.response, a.err = t.Transport.RoundTrip(late) })
		replies <- a
	}()
	select {
	case a := <-replies:
		return a.response, a.err
	case <-r.Context().Done():
		go func() {
			if a := <-replies; a.err == nil {
				a.response.Body.Close()
			}
		}()
		return nil, r.Context().Err()
	}
}

// TestProgram judges from a program, whose children are the program itself.
func TestProgram(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "judge")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-race", "-o", program, "./judge").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	if want := "Exclusive: kept\nProcesses: kept\nHolderKilled: kept\n"; err != nil || string(out) != want {
		t.Errorf("judge = %v:\n%s\nwant\n%s", err, out, want)
	}
}
