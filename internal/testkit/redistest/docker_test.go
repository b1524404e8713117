package redistest

// Images: a silent registry is given up, and an image is built once.

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ory/dockertest/v3/docker"
)

// TestSilentRegistry uses a fake engine, whose registry never answers.
func TestSilentRegistry(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	fake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/images/create") {
			<-over
		}
		http.Error(w, `{"message":"no such image"}`, http.StatusNotFound)
	}))
	defer fake.Close()
	defer close(over)
	client, err := docker.NewClient(fake.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := &dockerSource{f: &Farm{cache: t.TempDir(), log: io.Discard}, e: &engine{client: client}}
	if err := s.pull(t.Context(), defaultImage, time.Millisecond); err == nil || !strings.Contains(err.Error(), "nothing within 1ms") {
		t.Errorf("pull from a registry that keeps silent = %v, want that it was given up", err)
	}
}
