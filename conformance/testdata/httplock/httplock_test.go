package httplock

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// urlVar hands the server down to child processes.
const urlVar = "HTTPLOCK_URL"

func TestConformance(t *testing.T) {
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
			_, err := admin.ask(ctx, "/evict", time.Time{}, message{Key: key(driver.Claim{Key: k})})
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

func (t gated) RoundTrip(r *http.Request) (response *http.Response, err error) {
	t.gate(r.URL.Path, func() { response, err = t.Transport.RoundTrip(r) })
	return response, err
}

// TestProgram judges from a program, whose children are the program itself.
func TestProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "judge")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./judge").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	if want := "Exclusive: kept\nProcesses: kept\nHolderKilled: kept\n"; err != nil || string(out) != want {
		t.Errorf("judge = %v:\n%s\nwant\n%s", err, out, want)
	}
}
