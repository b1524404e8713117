package redistest

// Servers from Debian's packages and from PATH.

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fakeDebian puts an apt-get on PATH that knows one package, redis-server, which runs the server of
// this machine. A command that the test does not expect fails. Any machine
// without a registry and a server proves what the real apt-get does, and so does "make editions".
func fakeDebian(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"apt-get", "apt-config", "dpkg-deb", "tar"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("NOT PROVEN: what is made of Debian's packages: %v", err)
		}
	}
	f := open(t, Process)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("deb/DEBIAN/control", "Package: redis-server\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: a server\n")
	write("deb/usr/bin/redis-server", "#!/bin/sh\nexec "+f.source.(*processSource).program+` "$@"`+"\n")
	write("deb/usr/lib/any/ld-linux.so.2", "#!/bin/sh\nshift 2 # --library-path\nexec \"$@\"\n")
	write("bin/apt-get", `#!/bin/sh
case " $* " in
*" indextargets "* | *" update "*) ;;
*" install redis-server "*) cp `+dir+`/redis-server.deb apt/archives/ ;;
*) echo "E: Unable to locate package" >&2; exit 100 ;;
esac
`)
	if out, err := exec.Command("dpkg-deb", "--build", dir+"/deb", dir+"/redis-server.deb").CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v: %s", err, out)
	}
	t.Setenv("PATH", filepath.Join(dir, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// TestFetchedOnce has two farms want a package at a time.
func TestFetchedOnce(t *testing.T) {
	fakeDebian(t)
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
			t.Fatal(errs[i])
		}
		defer f.Close()
	}
	if all := logs[0].String() + logs[1].String(); strings.Count(all, "fetching") != 1 {
		t.Errorf("two farms logged\n%swant one to fetch and the other to wait", all)
	}
	for _, f := range farms {
		s := start(t, f, Config{})
		do(t, s, "PING")
		if got := f.Choice(); !strings.Contains(got, s.Version()) || !strings.Contains(got, dir) {
			t.Errorf("choice once unpacked = %q, want %s and %s in it", got, s.Version(), dir)
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
	fakeDebian(t)
	_, err := Open(t.Context(), Want{Kind: Process, Package: "no-such-server", Cache: t.TempDir()})
	for _, want := range []string{"no-such-server@bookworm", "Unable to locate package", "Ways out"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open with a package that does not exist = %v, want an error with %q", err, want)
		}
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
