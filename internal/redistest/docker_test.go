package redistest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// TestSilentRegistryIsFoundOutFast uses a fake engine, whose registry never answers.
func TestSilentRegistryIsFoundOutFast(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	over := make(chan struct{})
	fake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/distribution/") {
			asked.Add(1)
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
	f := &Farm{cache: cache(t.TempDir()), engine: &engine{client: client, pool: &dockertest.Pool{Client: client}}}
	began := time.Now()
	_, first := openImage(t.Context(), f, "")
	if took := time.Since(began); first == nil || took > registryLimit+patience/2 {
		t.Errorf("openImage without a registry = %v after %v, want an error after %v", first, took, registryLimit)
	}
	_, second := openImage(t.Context(), f, "")
	if second == nil || first == nil || second.Error() != first.Error() || asked.Load() != 1 {
		t.Errorf("second openImage = %v, having asked %d times, want %v, remembered", second, asked.Load(), first)
	}
	// What was named is pulled without asking first: nothing else would be taken.
	src, err := openImage(t.Context(), f, "redis:8")
	if err != nil || !strings.Contains(src.describe(), "redis:8") {
		t.Errorf("openImage of a named image = %v, %v, want it, to be pulled", src, err)
	}
}

// TestPull pulls from a registry of its own, on this machine, for the engines that
// may be without any other.
func TestPull(t *testing.T) {
	t.Parallel()
	f := open(t, Docker)
	built, ok := f.src.(*dockerSource)
	if !ok || built.spec == nil || !f.engine.hostNet {
		t.Skip("NOT PROVEN: that an image is pulled from a local registry: needs a local engine and the distribution's packages")
	}
	if err := f.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	u, err := f.cache.unpack(t.Context(), built.spec, io.Discard)
	if err != nil {
		t.Skipf("NOT PROVEN: that an image is pulled from a local registry: %v", err)
	}
	registry := httptest.NewServer(registryOf(t, u))
	defer registry.Close()
	image := strings.TrimPrefix(registry.URL, "http://") + "/redistest:1"
	t.Cleanup(func() {
		if err := f.engine.client.RemoveImage(image); err != nil {
			t.Error(err)
		}
	})

	ask := &dockerSource{f: &Farm{cache: cache(t.TempDir())}, e: f.engine, image: image}
	if err := ask.askRegistry(t.Context()); err != nil {
		t.Errorf("askRegistry of one that has the image = %v, want nil", err)
	}
	ask.image = image + "23"
	if err := ask.askRegistry(t.Context()); err == nil {
		t.Error("askRegistry of one that has no such image = nil, want an error")
	}

	var log bytes.Buffer
	pulling, err := Open(t.Context(), Want{Image: image, Log: &log})
	if err != nil {
		t.Fatal(err)
	}
	defer pulling.Close()
	if got := pulling.Choice(); !strings.Contains(got, image) || !strings.Contains(got, "to be pulled now") {
		t.Errorf("choice before the pull = %q, want the image to be pulled", got)
	}
	s, err := pulling.Shared(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := pulling.Choice(), s.Version()+", image "+image; !strings.Contains(got, want) {
		t.Errorf("choice after the pull = %q, want %q in it", got, want)
	}
	if !strings.Contains(log.String(), "pulling "+image) {
		t.Errorf("log = %q, want the pull", log.String())
	}
}

// registryOf serves the image of u under any name, with the tag 1.
func registryOf(t *testing.T, u *unpacked) http.Handler {
	t.Helper()
	var plain, layer bytes.Buffer
	if err := u.tar(&plain); err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewWriterLevel(&layer, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := zip.Write(plain.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	config, err := u.imageConfig(digest(plain.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	const docker = "application/vnd.docker."
	blob := func(kind string, b []byte) map[string]any {
		return map[string]any{"mediaType": docker + kind, "size": len(b), "digest": "sha256:" + digest(b)}
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2,
		"mediaType":     docker + "distribution.manifest.v2+json",
		"config":        blob("container.image.v1+json", config),
		"layers":        []any{blob("image.rootfs.diff.tar.gzip", layer.Bytes())},
	})
	if err != nil {
		t.Fatal(err)
	}
	serve := func(w http.ResponseWriter, kind string, b []byte) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Docker-Content-Digest", "sha256:"+digest(b))
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		w.Write(b)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch p := r.URL.Path; {
		case p == "/v2/":
			serve(w, "application/json", []byte("{}"))
		case strings.HasSuffix(p, "/manifests/1"), strings.HasSuffix(p, digest(manifest)):
			serve(w, docker+"distribution.manifest.v2+json", manifest)
		case strings.HasSuffix(p, digest(config)):
			serve(w, "application/octet-stream", config)
		case strings.HasSuffix(p, digest(layer.Bytes())):
			serve(w, "application/octet-stream", layer.Bytes())
		default:
			http.NotFound(w, r)
		}
	})
}
