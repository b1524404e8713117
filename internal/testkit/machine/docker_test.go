package machine

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
	h, err := NewHost(t.TempDir(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	i := &Image{Host: h, Engine: &Engine{client: client}}
	if err := i.Pull(t.Context(), "redis:7.0", time.Millisecond); err == nil || !strings.Contains(err.Error(), "nothing within 1ms") {
		t.Errorf("pull from a registry that keeps silent = %v, want that it was given up", err)
	}
}
