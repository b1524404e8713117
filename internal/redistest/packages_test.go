package redistest

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestFetchedOnce goes the whole way from nothing, as two processes at a time.
func TestFetchedOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("NOT PROVEN: that a server comes from Debian's packages: -short fetches nothing")
	}
	dir := t.TempDir()
	var logs [2]bytes.Buffer
	var farms [2]*Farm
	var errs [2]error
	var wg sync.WaitGroup
	for i := range farms {
		wg.Go(func() {
			farms[i], errs[i] = Open(t.Context(), Want{Kind: Process, Package: DefaultPackage, Cache: dir, Log: &logs[i]})
		})
	}
	wg.Wait()
	for i, f := range farms {
		if errs[i] != nil {
			t.Skipf("NOT PROVEN: that a server comes from Debian's packages: %v", errs[i])
		}
		defer f.Close()
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
	var names []string
	entries, err := os.ReadDir(filepath.Join(dir, "packages", DefaultPackage))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"Dockerfile", "root", "server"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("the cache has %v, %v, want %v", names, err, want)
	}
}

func TestNoSuchPackage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("NOT PROVEN: what is said of a package that does not exist: -short fetches nothing")
	}
	_, err := Open(t.Context(), Want{Kind: Process, Package: "no-such-server", Cache: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "no-such-server@bookworm") || !strings.Contains(err.Error(), "Ways out") {
		t.Errorf("Open with a package that does not exist = %v, want its name and the ways out", err)
	}
}

// TestServerOnPath puts one there that runs.
func TestServerOnPath(t *testing.T) {
	f := open(t, Process)
	dir := t.TempDir()
	script := "#!/bin/sh\nexec " + f.source.(*processSource).program + ` "$@"` + "\n"
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
