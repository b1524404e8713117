// Tests that a release of this tree installs: a module outside of it gets each package, client and the tool from a module
// proxy, builds its program, and takes its first lock.
package main

import (
	"archive/zip"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	gomodule "golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
)

const (
	tested = "v0.999.0"
	locks  = "github.com/lockstrategies/locks"
	prints = "only one process at a time gets here\n"
)

func TestInstall(t *testing.T) {
	r := releasedTree(t)
	_, modules, err := r.modules(t.Context())
	redistest.Must(t, err)
	env := consumerEnv(t, proxy(t, r, modules))

	t.Run("fairqueue", func(t *testing.T) { firstLock(t, env, r, "fairqueue", redistest.Shared(t).Addr()) })
	for _, m := range modules[1:] {
		if m.program() {
			continue // the tool, below
		}
		t.Run(m.folder, func(t *testing.T) {
			firstLock(t, env, r, m.folder, serverOf(t, m.folder))
		})
	}
	t.Run("tool", func(t *testing.T) {
		bin := t.TempDir()
		goCommand(t, t.TempDir(), append(env, "GOBIN="+bin), "install", locks+"/cmd/locks@"+tested)
		tool := exec.CommandContext(t.Context(), filepath.Join(bin, "locks"), "exec", "nightly", "--try", "--", "echo", "held")
		tool.Env = append(os.Environ(), "REDIS_URL="+redistest.Shared(t).URL())
		if got := output(t, tool); got != "held\n" {
			t.Errorf("locks exec prints %q, want what the command prints", got)
		}
		if got := output(t, exec.CommandContext(t.Context(), filepath.Join(bin, "locks"), "--version")); !strings.HasPrefix(got, "locks "+tested+" ") {
			t.Errorf("locks --version prints %q, want %s", got, tested)
		}
	})
}

// serverOf is the address of a server for a module's first lock.
func serverOf(t *testing.T, folder string) string {
	t.Helper()
	switch folder {
	case "clients/redisc":
		return redistest.OwnCluster(t, redistest.ClusterConfig{Masters: 1}).Addrs()[0]
	case "stores/postgres":
		return storetest.PostgresURL(t)
	case "stores/etcd":
		return storetest.EtcdEndpoints(t)[0]
	}
	return redistest.Shared(t).Addr()
}

// releasedTree is a repository of this tree, with the changes that no commit has, and a release of it.
func releasedTree(t *testing.T) repository {
	t.Helper()
	here := repository(".")
	r := initialize(t)
	git(t, r, "--work-tree", git(t, here, "rev-parse", "--show-toplevel"), "add", "--all")
	git(t, r, "commit", "--quiet", "--message", "tree")
	git(t, r, "reset", "--quiet", "--hard")
	files, modules, err := r.modules(t.Context())
	redistest.Must(t, err)
	err = r.release(t.Context(), "release", modules, tested, func() error { return r.require(files, modules, tested) })
	redistest.Must(t, err)
	return r
}

// proxy writes the released modules as a module proxy serves them (https://go.dev/ref/mod#goproxy-protocol), and
// returns the folder.
func proxy(t *testing.T, r repository, modules []module) string {
	t.Helper()
	served := repository(t.TempDir())
	for _, m := range modules {
		at, tag := m.path+"/@v/", tagsOf([]module{m}, tested)[0]
		write(t, served, at+"list", tested+"\n")
		write(t, served, at+tested+".info", `{"Version":"`+tested+`"}`)
		write(t, served, at+tested+".mod", git(t, r, "show", tag+":"+path.Join(m.folder, "go.mod"))+"\n")
		zipped, err := os.Create(filepath.Join(string(served), at+tested+".zip"))
		redistest.Must(t, err)
		err = modzip.CreateFromVCS(zipped, gomodule.Version{Path: m.path, Version: tested}, string(r), tag, m.folder)
		redistest.Must(t, errors.Join(err, zipped.Close()))
		checkLicence(t, zipped.Name(), m.path+"@"+tested+"/LICENSE")
	}
	return string(served)
}

// checkLicence: pkg.go.dev shows the documentation of no module without a licence.
func checkLicence(t *testing.T, zipped, name string) {
	t.Helper()
	z, err := zip.OpenReader(zipped)
	redistest.Must(t, err)
	defer z.Close()
	if _, err := fs.Stat(z, name); err != nil {
		t.Errorf("%s: %v", zipped, err)
	}
}

// consumerEnv is the environment of a consumer, whose modules come from the proxy if they are released here. The others
// come from what this machine has downloaded, or else from where it downloads. The proxy is asked first, so that
// nobody else is asked for a version that does not exist.
func consumerEnv(t *testing.T, proxy string) []string {
	t.Helper()
	mine := strings.Fields(goCommand(t, ".", os.Environ(), "env", "GOMODCACHE", "GOPROXY"))
	return append(os.Environ(),
		"GOENV=off", "GOWORK=off", "GOPRIVATE=", "GONOPROXY=", "GOSUMDB=off",
		"GOPROXY=file://"+proxy+",file://"+mine[0]+"/cache/download,"+mine[1],
		"GOMODCACHE="+t.TempDir(),
		"GOFLAGS=-modcacherw -trimpath") // -trimpath: builds in other folders find in the cache what was compiled
}

// firstLock gets the package in a new module, and runs a program that takes its first lock.
func firstLock(t *testing.T, env []string, r repository, pkg, addr string) {
	t.Helper()
	consumer := repository(t.TempDir())
	write(t, consumer, "go.mod", "module example.com/consumer\n\ngo 1.25.0\n")
	for name, text := range program(t, r, pkg, addr) {
		write(t, consumer, name, text)
	}
	goCommand(t, string(consumer), env, "get", locks+"/"+pkg+"@"+tested)
	goCommand(t, string(consumer), env, "mod", "tidy") // the program also imports other packages than the one it got
	got := goCommand(t, string(consumer), env, "run", ".", addr)
	if strings.TrimSuffix(got, "<nil>\n") != prints { // the quickstart prints its error, too
		t.Errorf("the program prints %q, want %q", got, prints)
	}
}

// program is the quickstart of a package, which the README shows, with another address; or what testdata has.
func program(t *testing.T, r repository, pkg, addr string) map[string]string {
	t.Helper()
	if text, err := r.read(pkg + "/quickstart/main.go"); err == nil {
		before, after, found := strings.Cut(text, `"localhost:6379"`)
		if !found {
			t.Fatalf("%s/quickstart/main.go names no server:\n%s", pkg, text)
		}
		return map[string]string{"main.go": before + strconv.Quote(addr) + after}
	}
	here := repository("testdata")
	text := read(t, here, pkg+".go")
	if strings.Contains(text, "func main()") {
		return map[string]string{"main.go": text}
	}
	return map[string]string{"main.go": read(t, here, "main.go"), "connect.go": text}
}

func goCommand(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, env
	return output(t, cmd)
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.Output()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, failed.Stderr)
	}
	redistest.Must(t, err)
	return string(out)
}
