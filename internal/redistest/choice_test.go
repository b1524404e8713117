package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	given := []string{"127.0.0.1:6379"}
	for _, c := range []struct {
		name  string
		want  Want
		steps []step
		notes []string
	}{
		{"nothing named: the most real first", Want{},
			[]step{imageContainer, builtContainer, pathProcess, unpackedProcess, embeddedServer}, []string{"no REDIS_ADDRS"}},
		{"servers given: nothing else", Want{Addrs: given}, []step{givenServers}, nil},
		{"servers given and demanded", Want{Kind: Given, Addrs: given}, []step{givenServers}, nil},
		{"servers given, containers demanded", Want{Kind: Docker, Addrs: given},
			[]step{imageContainer, builtContainer}, []string{"REDIS_ADDRS passed over", "REDIS_KIND=docker"}},
		{"processes demanded", Want{Kind: Process},
			[]step{pathProcess, unpackedProcess}, []string{"no REDIS_ADDRS", "REDIS_KIND=process"}},
		{"embedded demanded", Want{Kind: Embedded},
			[]step{embeddedServer}, []string{"no REDIS_ADDRS", "REDIS_KIND=embedded"}},
		{"a named image is not replaced", Want{Image: "redis:8"}, []step{imageContainer}, []string{"no REDIS_ADDRS"}},
		{"a named package is not replaced", Want{Package: "valkey-server"},
			[]step{builtContainer, unpackedProcess}, []string{"no REDIS_ADDRS"}},
		{"an image or a package", Want{Image: "redis:8", Package: "redis-server@trixie"},
			[]step{imageContainer, builtContainer, unpackedProcess}, []string{"no REDIS_ADDRS"}},
		{"a named server, from its image or its package", Want{Server: "valkey-9.1"},
			[]step{imageContainer, builtContainer, unpackedProcess}, []string{"no REDIS_ADDRS", "REDIS_SERVER=valkey-9.1"}},
		{"a named server that no package has", Want{Server: "redis-7.4"},
			[]step{imageContainer}, []string{"no REDIS_ADDRS", "REDIS_SERVER=redis-7.4"}},
		{"a named server in containers", Want{Server: "redis-8.0", Kind: Docker},
			[]step{imageContainer, builtContainer}, []string{"no REDIS_ADDRS", "REDIS_KIND=docker", "REDIS_SERVER=redis-8.0"}},
		{"a named server as a process", Want{Server: "redis-8.0", Kind: Process},
			[]step{unpackedProcess}, []string{"no REDIS_ADDRS", "REDIS_KIND=process", "REDIS_SERVER=redis-8.0"}},
		{"a named image that must be a named server", Want{Server: "redis-8.0", Image: "redis:8-alpine"},
			[]step{imageContainer}, []string{"no REDIS_ADDRS", "REDIS_SERVER=redis-8.0"}},
		{"a named package as a process", Want{Kind: Process, Package: "valkey-server"},
			[]step{unpackedProcess}, []string{"no REDIS_ADDRS", "REDIS_KIND=process"}},
	} {
		steps, notes := plan(c.want)
		if !slices.Equal(steps, c.steps) || !slices.Equal(notes, c.notes) {
			t.Errorf("%s: plan(%+v) = %v, %q, want %v, %q", c.name, c.want, steps, notes, c.steps, c.notes)
		}
	}
}

// fakeSource is a source whose preparation succeeds or fails.
type fakeSource struct {
	name string
	err  error
}

func (s fakeSource) kind() Kind                                   { return Kind(s.name) }
func (s fakeSource) describe() string                             { return s.name }
func (s fakeSource) prepare(context.Context, io.Writer) error     { return s.err }
func (fakeSource) start(context.Context, Config) (machine, error) { return nil, errors.ErrUnsupported }
func probeOnly(open step) func(context.Context, step) (source, error) {
	return func(_ context.Context, st step) (source, error) {
		if st == open {
			return fakeSource{name: fmt.Sprint(st)}, nil
		}
		if st == imageContainer || st == builtContainer {
			return nil, errors.New("no\n engine")
		}
		return nil, fmt.Errorf("no %d", st)
	}
}

func TestWalkKeepsEveryReasonOnce(t *testing.T) {
	t.Parallel()
	steps, notes := plan(Want{})
	src, rest, notes, err := walk(t.Context(), steps, notes, probeOnly(unpackedProcess))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := src.describe(), fmt.Sprint(unpackedProcess); got != want {
		t.Errorf("walk chose %s, want %s", got, want)
	}
	if want := []step{embeddedServer}; !slices.Equal(rest, want) {
		t.Errorf("walk left %v, want %v", rest, want)
	}
	if want := []string{"no REDIS_ADDRS", "no engine", "no 3"}; len(notes) != 3 || notes[0] != want[0] || notes[1] != want[1] {
		t.Errorf("walk noted %q, want like %q", notes, want)
	}
}

func TestWalkWithoutAWayNamesTheWaysOut(t *testing.T) {
	t.Parallel()
	steps, notes := plan(Want{Kind: Docker})
	_, _, _, err := walk(t.Context(), steps, notes, probeOnly(embeddedServer))
	for _, want := range []string{"no engine", "REDIS_KIND=docker", "REDIS_ADDRS", "unset REDIS_KIND"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("walk = %v, want an error with %q", err, want)
		}
	}
}

func TestWalkEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := walk(ctx, []step{pathProcess, embeddedServer}, nil, probeOnly(embeddedServer)); !errors.Is(err, context.Canceled) {
		t.Errorf("walk with a cancelled context = %v, want context.Canceled", err)
	}
}

func TestFailedPreparationTakesTheNextWay(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := &Farm{log: &log, src: fakeSource{"image", errors.New("the pull broke")}, rest: []step{embeddedServer}, notes: []string{"no REDIS_ADDRS"}}
	if err := f.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.Kind() != Embedded {
		t.Errorf("kind after a failed preparation = %s, want %s", f.Kind(), Embedded)
	}
	if got, want := log.String(), "(no REDIS_ADDRS; the pull broke)\n"; !strings.HasSuffix(got, want) || got != f.Choice()+"\n" {
		t.Errorf("log = %q, want the new choice, ending in %q", got, want)
	}

	f = &Farm{log: io.Discard, src: fakeSource{"image", errors.New("the pull broke")}}
	if err := f.Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "the pull broke") {
		t.Errorf("Prepare without another way = %v, want why", err)
	}
}

func TestFromEnv(t *testing.T) {
	for _, k := range []string{"REDIS_ADDRS", "REDIS_KIND", "REDIS_SERVER", "REDIS_IMAGE", "REDIS_PACKAGE"} {
		t.Setenv(k, "")
	}
	for _, c := range []struct{ key, value, complaint string }{
		{"REDIS_KIND", "", ""},
		{"REDIS_KIND", "embedded", ""},
		{"REDIS_KIND", "dokcer", "allowed are given, docker, process, embedded"},
		{"REDIS_KIND", "given", "REDIS_ADDRS"},
		{"REDIS_SERVER", "valkey-9.1", ""},
		{"REDIS_SERVER", "redis-7.4", ""},
		{"REDIS_SERVER", "valkey 9.1", "such as redis-7.0, redis-8.0, valkey-8.1, valkey-9.1"},
		{"REDIS_SERVER", "redis-latest", "want redis-version"},
		{"REDIS_PACKAGE", "valkey-server@trixie", ""},
		{"REDIS_PACKAGE", "valkey", "package[@suite]"},
		{"REDIS_PACKAGE", "../x-server", "package[@suite]"},
		{"REDIS_ADDRS", "localhost, redis://u:p@host:1/2 ,", ""},
		{"REDIS_ADDRS", "http://host", "want host:port"},
		{"REDIS_ADDRS", "redis://u:secret@ho st", "want host:port"},
	} {
		t.Run(c.key+"="+c.value, func(t *testing.T) {
			t.Setenv(c.key, c.value)
			_, err := FromEnv()
			if c.complaint == "" && err != nil {
				t.Errorf("FromEnv with %s=%s = %v, want nil", c.key, c.value, err)
			}
			if c.complaint != "" && (err == nil || !strings.Contains(err.Error(), c.complaint)) {
				t.Errorf("FromEnv with %s=%s = %v, want an error with %q", c.key, c.value, err, c.complaint)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("FromEnv with %s=%s tells the password: %v", c.key, c.value, err)
			}
		})
	}
}

func TestServerURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"localhost":             "redis://localhost:6379",
		"10.0.0.1:7":            "redis://10.0.0.1:7",
		"[::1]:7":               "redis://[::1]:7",
		"rediss://u:p@h:1/2":    "rediss://u:p@h:1/2",
		"redis://:p@redis.test": "redis://:p@redis.test:6379",
	} {
		if got, err := serverURL(in); got != want || err != nil {
			t.Errorf("serverURL(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{User: "u"}, {Password: "a b"}, {Database: -1}} {
		if c.check() == nil {
			t.Errorf("%+v.check() = nil, want an error", c)
		}
	}
}

func TestEdition(t *testing.T) {
	t.Parallel()
	for _, name := range Editions() {
		e, err := parseEdition(name)
		if err != nil || e.String() != name {
			t.Errorf("parseEdition(%s) = %s, %v", name, e, err)
		}
		if p, err := parsePackage(e.pkg()); err != nil || p.suite == "" || !strings.HasPrefix(p.name, e.product) {
			t.Errorf("the package of %s is %q, want one of %s in a named suite", name, e.pkg(), e.product)
		}
	}
	for name, image := range map[string]string{"redis-7.0": "redis:7.0", "valkey-9.1": "valkey/valkey:9.1", "redis-7.4.2": "redis:7.4.2", "": ""} {
		if e, err := parseEdition(name); err != nil || e.image() != image {
			t.Errorf("the image of %q is %q, %v, want %q", name, e.image(), err, image)
		}
	}
	for _, c := range []struct {
		name, told string
		want       bool
	}{
		{"redis-7.0", "Redis 7.0.15", true},
		{"redis-7.0", "Redis 7.0", true},
		{"redis-7", "Redis 7.0.15", true},
		{"redis-7.0.1", "Redis 7.0.15", false},
		{"redis-7.0", "Redis 7.2.1", false},
		{"redis-8.0", "Valkey 8.0.1", false},
		{"valkey-8.1", "Valkey 8.1.1", true},
		{"valkey-8.1", "miniredis", false},
		{"valkey-8.1", "Redis (version not told: NOPERM)", false},
		{"", "whatever", true},
	} {
		e, err := parseEdition(c.name)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.wrong(c.told, "from somewhere"); (err == nil) != c.want {
			t.Errorf("%q for %q: %v, want right %v", c.told, c.name, err, c.want)
		} else if err != nil && (!strings.Contains(err.Error(), c.told) || !strings.Contains(err.Error(), "from somewhere")) {
			t.Errorf("%q for %q: %v, want both, and where it is from", c.told, c.name, err)
		}
	}
}

func TestVersionsOf(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"redis-server_5%3a7.0.15-1~deb12u7_amd64.deb":    "7.0.15",
		"redis-server_8.1.1+dfsg1-3+deb13u2_arm64.deb":   "8.1.1",
		"redis-server_5%3a6.0.16-1ubuntu1_amd64.deb":     "6.0.16",
		"/some/where/redis-server_5%3a8.0.2-3_amd64.deb": "8.0.2",
	} {
		if _, got, err := versionsOf("redis-server", []string{"redis-tools_1_all.deb", file}); got != want || err != nil {
			t.Errorf("versionsOf(%s) = %s, %v, want %s", file, got, err, want)
		}
	}
	if _, _, err := versionsOf("redis-server", []string{"redis-tools_1_all.deb"}); err == nil {
		t.Error("versionsOf without the package = nil, want an error")
	}
}

func TestPickSource(t *testing.T) {
	t.Parallel()
	const debian = "http://mirror.test/debian/\tbookworm\tmain\t/etc/apt/a.sources:1\n" +
		"http://mirror.test/debian/\tbookworm\tcontrib\t/etc/apt/a.sources:1\n" +
		"http://mirror.test/debian/\tbookworm-updates\tmain\t/etc/apt/a.sources:1\n" +
		"http://else.test/\tnodistro\tmain\t/etc/apt/b.list:1\n"
	const ubuntu = "http://mirror.test/ubuntu/\tnoble\tmain\t/etc/apt/u.sources:1\n" +
		"http://mirror.test/ubuntu/\tnoble\tuniverse\t/etc/apt/u.sources:1\n"
	for _, c := range []struct {
		name, list, hostID, hostSuite, distro, suite string
		uri, components                              string
	}{
		{"own suite", debian, "debian", "bookworm", "Debian", "bookworm", "http://mirror.test/debian/", "main"},
		{"other suite, same mirror", debian, "debian", "bookworm", "Debian", "forky", "http://mirror.test/debian/", "main"},
		{"no list", "", "debian", "bookworm", "Debian", "bookworm", debianMirror, "main"},
		{"another distribution's own", ubuntu, "ubuntu", "noble", "ubuntu", "noble", "http://mirror.test/ubuntu/", "main universe"},
		{"Debian's on another distribution", ubuntu, "ubuntu", "noble", "Debian", "trixie", debianMirror, "main"},
	} {
		got, err := pickSource(c.list, &distroPkg{hostID: c.hostID, hostSuite: c.hostSuite, distro: c.distro, suite: c.suite})
		if err != nil || got.uri != c.uri || strings.Join(got.components, " ") != c.components {
			t.Errorf("%s: pickSource = %+v, %v, want %s %s", c.name, got, err, c.uri, c.components)
		}
	}
	if _, err := pickSource("", &distroPkg{hostID: "ubuntu", hostSuite: "noble", distro: "ubuntu", suite: "noble"}); err == nil {
		t.Error("pickSource without a source of the host's distribution = nil, want an error")
	}
}

func TestSplitImage(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]string{
		"redis":               {"redis", "latest"},
		"redis:7.0":           {"redis", "7.0"},
		"r.test:5000/redis":   {"r.test:5000/redis", "latest"},
		"r.test:5000/redis:8": {"r.test:5000/redis", "8"},
		"redis@sha256:00":     {"redis", "sha256:00"},
	} {
		if name, tag := splitImage(in); name != want[0] || tag != want[1] {
			t.Errorf("splitImage(%q) = %q, %q, want %q", in, name, tag, want)
		}
	}
}

func TestResolveInTree(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	if err := os.MkdirAll(filepath.Join(tree, "usr/lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "usr/lib/real.so"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"abs.so": "/lib/real.so", "rel.so": "../lib/real.so", "loop.so": "loop.so"} {
		if err := os.Symlink(to, filepath.Join(tree, "usr/lib", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"usr/lib/abs.so", "lib/rel.so", "/lib/real.so"} {
		if got, err := resolveIn(tree, name); got != filepath.Join(tree, "usr/lib/real.so") || err != nil {
			t.Errorf("resolveIn(%s) = %s, %v, want the real file inside the tree", name, got, err)
		}
	}
	for _, name := range []string{"usr/lib/loop.so", "lib/none.so"} {
		if got, err := resolveIn(tree, name); err == nil {
			t.Errorf("resolveIn(%s) = %s, want an error", name, got)
		}
	}
}

func TestTarIsDeterministic(t *testing.T) {
	t.Parallel()
	u := &unpacked{Package: "redis-server", dir: t.TempDir()}
	for _, f := range []string{"b/two", "a/one"} {
		p := filepath.Join(u.root(), f)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(f), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var one, two bytes.Buffer
	if err := u.tar(&one); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(u.root(), "a/one"), later, later); err != nil {
		t.Fatal(err)
	}
	if err := u.tar(&two); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("two tars of the same content differ")
	}
}

func TestCacheLockHoldsOthersOff(t *testing.T) {
	t.Parallel()
	if !haveProcesses {
		t.Skip("NOT PROVEN: locks among processes: there are none on this system")
	}
	c := cache(t.TempDir())
	unlock, err := c.lock(t.Context(), "x/y")
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.lock(short, "x/y"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second lock = %v, want context.DeadlineExceeded", err)
	}
	unlock()
	again, err := c.lock(t.Context(), "x/y")
	if err != nil {
		t.Fatalf("lock after unlock = %v, want nil", err)
	}
	again()
}

func TestPortsAreReserved(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 50 { // who have a cache of their own, too
		port, release, err := cache(t.TempDir()).reservePort()
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if haveProcesses && seen[port] {
			t.Errorf("port %d was given twice", port)
		}
		seen[port] = true
	}
}

// Nobody listens on a port that has just been reserved, whatever children are being started: they
// have what the parent has open until they execute.
func TestReservedPortIsFree(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("to close a listener is all that can be done here")
	}
	defer StartChildren(t)()
	dir := cache(t.TempDir())
	for range 500 {
		port, release, err := dir.reservePort()
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		EndListening(ln)
		release()
	}
}

// TestNoOtherEdition: what was named, or is not ours, is not replaced by another edition.
func TestNoOtherEdition(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		src  source
		want Want
		says string
	}{
		{"embedded servers", embeddedSource{}, Want{}, "of embedded servers there is no other edition"},
		{"given servers", &givenSource{}, Want{}, "of given servers there is no other edition"},
		{"a named server", fakeSource{}, Want{Server: "redis-7.0"}, "redis-7.0 was asked for, and is not replaced by redis-8.0"},
		{"a named image", fakeSource{}, Want{Image: "redis:6"}, "redis:6 was asked for"},
	} {
		f := &Farm{log: io.Discard, src: c.src, want: c.want}
		for range 2 {
			if _, err := f.Of(t.Context(), "redis-8.0"); !errors.Is(err, ErrImpossible) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Of, %s = %v, want ErrImpossible and %q", c.what, err, c.says)
			}
		}
	}
	f := &Farm{log: io.Discard, src: embeddedSource{}}
	if _, err := f.Having(t.Context(), "WAITAOF", "redis-8.0"); !errors.Is(err, ErrImpossible) || !strings.Contains(err.Error(), "the servers know no WAITAOF") {
		t.Errorf("Having, embedded servers = %v, want ErrImpossible, and what they do not know", err)
	}
	if _, err := f.Of(t.Context(), "redis 8"); err == nil || errors.Is(err, ErrImpossible) {
		t.Errorf("Of redis 8 = %v, want that there is no such edition", err)
	}
}
