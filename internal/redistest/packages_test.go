package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestFetchedOnce goes the whole way from nothing, as two processes at a time.
func TestFetchedOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("NOT PROVEN: that a server can be had from the distribution's packages: -short fetches nothing")
	}
	dir := t.TempDir()
	var logs [2]bytes.Buffer
	var farms [2]*Farm
	for i := range farms {
		f, err := Open(t.Context(), Want{Kind: Process, Package: DefaultPackage, Cache: dir, Log: &logs[i]})
		if err != nil {
			t.Skipf("NOT PROVEN: that a server can be had from the distribution's packages: %v", err)
		}
		defer f.Close()
		if got := f.Choice(); !strings.Contains(got, "to be unpacked now") {
			t.Errorf("choice with an empty cache = %q, want the package to be unpacked now", got)
		}
		farms[i] = f
	}
	errs := make([]error, len(farms))
	var wg sync.WaitGroup
	for i, f := range farms {
		wg.Go(func() { errs[i] = f.Prepare(t.Context()) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		if strings.Contains(err.Error(), "cannot be fetched") { // no network, say
			t.Skipf("NOT PROVEN: that a server can be had from the distribution's packages: %v", err)
		}
		t.Fatal(err)
	}
	if all := logs[0].String() + logs[1].String(); strings.Count(all, "fetching") != 1 {
		t.Errorf("two farms logged\n%swant one to fetch and the other to wait", all)
	}
	for _, f := range farms {
		s := start(t, f, Config{})
		do(t, s, "PING")
		if got := f.Choice(); !strings.Contains(got, s.Version()) {
			t.Errorf("choice once unpacked = %q, want %s in it", got, s.Version())
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "packages"))
	if err != nil || len(entries) != 2 {
		t.Errorf("the cache has %v, %v, want the package and its lock", entries, err)
	}
}

func TestNoSuchPackage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("NOT PROVEN: what is said of a package that does not exist: -short fetches nothing")
	}
	f, err := Open(t.Context(), Want{Kind: Process, Package: "no-such-server", Cache: t.TempDir()})
	if err != nil {
		t.Skipf("NOT PROVEN: what is said of a package that does not exist: %v", err)
	}
	defer f.Close()
	if _, err := f.Shared(t.Context()); err == nil || !strings.Contains(err.Error(), "no-such-server") || !strings.Contains(err.Error(), "Ways out") {
		t.Errorf("Shared of a package that does not exist = %v, want its name and the ways out", err)
	}
}

// TestImageIsFoundWithoutTheCache: it is not built again only because the cache was emptied.
func TestImageIsFoundWithoutTheCache(t *testing.T) {
	t.Parallel()
	f, err := Open(t.Context(), Want{Kind: Docker, Package: DefaultPackage})
	if err != nil {
		t.Skipf("NOT PROVEN: that a built image is found again: %v", err)
	}
	defer f.Close()
	if err := f.Prepare(t.Context()); err != nil {
		t.Skipf("NOT PROVEN: that a built image is found again: %v", err)
	}
	again, err := Open(t.Context(), Want{Kind: Docker, Package: DefaultPackage, Cache: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got, want := again.Choice(), f.Choice(); got != want {
		t.Errorf("choice with an empty cache = %q, want %q", got, want)
	}
	s, err := again.Shared(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	do(t, s, "PING")
}

// TestBuildImage loads the image under a tag that is not there yet.
func TestBuildImage(t *testing.T) {
	t.Parallel()
	f := open(t, Docker)
	built, ok := f.src.(*dockerSource)
	if !ok || built.spec == nil {
		t.Skip("NOT PROVEN: that an image is built from packages: the choice is another one")
	}
	u, err := f.unpack(t.Context(), built.spec, f.log)
	if err != nil {
		t.Skipf("NOT PROVEN: that an image is built from packages: %v", err)
	}
	// The cache of its own says that the package is another version than it is.
	other := cache(t.TempDir())
	dir := other.path("packages", built.spec.key())
	if err := os.CopyFS(filepath.Join(dir, "root"), os.DirFS(u.root())); err != nil {
		t.Fatal(err)
	}
	manifest := fmt.Sprintf(`{"package": %q, "deb": "5:0.0.1-1", "version": "0.0.1", "loader": %q, "lib_dir": %q, "hash": "%064d"}`,
		u.Package, u.Loader, u.LibDir, os.Getpid())
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	g, err := Open(t.Context(), Want{Kind: Docker, Package: built.spec.name + "@" + built.spec.suite, Cache: string(other), Log: &log})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if got := g.Choice(); !strings.Contains(got, "0.0.1, image to be built now") {
		t.Errorf("choice before the build = %q, want version 0.0.1, to be built now", got)
	}
	if err := g.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	image := g.src.(*dockerSource).image
	t.Cleanup(func() {
		if err := g.engine.client.RemoveImage(image); err != nil {
			t.Error(err)
		}
	})
	s, err := g.Shared(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	do(t, s, "PING")
	if got := g.Choice(); !strings.Contains(got, "0.0.1, image built from") || !strings.Contains(log.String(), image) {
		t.Errorf("choice after the build = %q with log %q, want the image", got, log.String())
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// TestServerOnPath puts one there that is known to run.
func TestServerOnPath(t *testing.T) {
	f := open(t, Process)
	if err := f.Prepare(t.Context()); err != nil {
		t.Skipf("NOT PROVEN: that a server on PATH is used: %v", err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\nexec " + strings.Join(f.src.(*processSource).command, " ") + ` "$@"` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "redis-server"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	g, err := Open(t.Context(), Want{Kind: Process})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	s, err := g.Shared(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	do(t, s, "PING")
	if got, want := g.Choice(), "local process, "+s.Version()+", "+filepath.Join(dir, "redis-server"); !strings.Contains(got, want) {
		t.Errorf("choice = %q, want %q in it", got, want)
	}
}
