package redistest

// Which server is chosen, and what is said where there is none.

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/machine"
)

func TestWays(t *testing.T) {
	t.Parallel()
	addrs := []string{"127.0.0.1:6379"}
	containers := []string{"image here", "image built earlier", "image pulled", "image built"}
	named := []string{"image here", "image pulled"}
	for _, c := range []struct {
		name  string
		want  Want
		ways  []string
		notes string
	}{
		{"nothing named: in the order of the kinds", Want{}, slices.Concat(containers, []string{"server on PATH", "server unpacked", "server embedded"}), "no REDIS_ADDRS"},
		{"servers given: nothing else", Want{Addrs: addrs}, []string{"given servers"}, ""},
		{"servers given and demanded", Want{Kind: Given, Addrs: addrs}, []string{"given servers"}, ""},
		{"servers given, containers demanded", Want{Kind: Docker, Addrs: addrs}, containers, "REDIS_ADDRS passed over; REDIS_KIND=docker"},
		{"processes demanded", Want{Kind: Process}, []string{"server on PATH", "server unpacked"}, "no REDIS_ADDRS; REDIS_KIND=process"},
		{"embedded demanded", Want{Kind: Embedded}, []string{"server embedded"}, "no REDIS_ADDRS; REDIS_KIND=embedded"},
		{"a named server, from its image or its package", Want{Server: "valkey-9.1"},
			slices.Concat(containers, []string{"server unpacked"}), "no REDIS_ADDRS; REDIS_SERVER=valkey-9.1"},
		{"a named server that no package has", Want{Server: "redis-7.4"}, named, "no REDIS_ADDRS; REDIS_SERVER=redis-7.4"},
		{"a named server as a process", Want{Server: "redis-8.0", Kind: Process}, []string{"server unpacked"}, "no REDIS_ADDRS; REDIS_KIND=process; REDIS_SERVER=redis-8.0"},
	} {
		f := &Farm{want: c.want}
		all, notes := f.ways(t.Context())
		var ways []string
		for _, w := range all {
			ways = append(ways, w.name)
		}
		if !slices.Equal(ways, c.ways) || strings.Join(notes, "; ") != c.notes {
			t.Errorf("%s: ways of %+v = %v, %q, want %v, %q", c.name, c.want, ways, notes, c.ways, c.notes)
		}
	}
}

// TestChoiceLine: a substitute for the image reads as a choice, and not as a failure.
func TestChoiceLine(t *testing.T) {
	t.Parallel()
	const built, local = "Docker container, Redis 7.0.15, image built", "local process, Redis 7.0.15, /bin/redis-server"
	noEngine := errors.New("no Docker engine at\nunix:///x")
	for _, c := range []struct {
		what     string
		settings []string
		failed   []error
		want     string
	}{
		{built, []string{noAddrs}, nil, built},
		{built, []string{noAddrs}, []error{machine.MissingImage("redis:7.0")}, built + ", in place of image redis:7.0"},
		{built, []string{noAddrs}, []error{machine.MissingImage("redis:7.0"), machine.MissingImage("built"), errors.New("pulling redis:7.0: nothing within 1s")},
			built + ", in place of image redis:7.0 (not available: pulling redis:7.0: nothing within 1s)"},
		{"Docker container, image redis:7.0", []string{noAddrs}, []error{machine.MissingImage("redis:7.0"), machine.MissingImage("built")}, "Docker container, image redis:7.0"},
		{local, []string{noAddrs}, []error{noEngine}, local + " (not available: no Docker engine at unix:///x)"},
		{local, []string{noAddrs, "REDIS_KIND=process"}, nil, local + " (REDIS_KIND=process)"},
		{"servers given", nil, nil, "servers given"},
	} {
		if got, want := choiceLine(c.what, c.settings, c.failed), "redis: "+c.want; got != want {
			t.Errorf("choiceLine(%q, %q, %v) = %q, want %q", c.what, c.settings, c.failed, got, want)
		}
	}
}

func TestFromEnv(t *testing.T) {
	for _, k := range []string{"REDIS_ADDRS", "REDIS_KIND", "REDIS_SERVER"} {
		t.Setenv(k, "")
	}
	for _, c := range []struct{ key, value, complaint string }{
		{"REDIS_KIND", "", ""},
		{"REDIS_KIND", "embedded", ""},
		{"REDIS_KIND", "dokcer", "allowed are given, docker, process, embedded"},
		{"REDIS_KIND", "given", "REDIS_ADDRS"},
		{"REDIS_SERVER", "valkey-9.1", ""},
		{"REDIS_SERVER", "redis-7.4", ""},
		{"REDIS_SERVER", "valkey 9.1", "such as redis-7.0, redis-8.0, redis-8.6, valkey-8.1, valkey-9.1"},
		{"REDIS_SERVER", "redis-latest", "want redis-version"},
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
				t.Errorf("FromEnv with %s=%s shows the password: %v", c.key, c.value, err)
			}
		})
	}
}

func TestEdition(t *testing.T) {
	t.Parallel()
	for _, name := range Editions() {
		e, err := parseEdition(name)
		if err != nil || e.String() != name {
			t.Errorf("parseEdition(%s) = %s, %v", name, e, err)
		}
		if p := packageOf(e.pkg()); p.Suite == "" || !strings.HasPrefix(p.Name, e.product) {
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
		{"valkey-8.1", "Redis (version not known: NOPERM)", false},
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

// TestPortsAreReserved reserves where everybody does: elsewhere it would knock at the servers of other
// tests, which count what they read, and could take the port of one that is to start again.
func TestPortsAreReserved(t *testing.T) {
	t.Parallel()
	f := openNew(t, Embedded)
	seen := map[int]bool{}
	for range 50 {
		port, release, err := f.ReservePort()
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if machine.HaveProcesses && seen[port] {
			t.Errorf("port %d was given twice", port)
		}
		seen[port] = true
		ln, err := net.Listen("tcp", net.JoinHostPort(machine.Loopback, strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		if !machine.Listens(port) {
			t.Errorf("listens(%d) = false, want true", port)
		}
		EndListening(ln)
	}
}

// fakeSource is a source of a kind that starts nothing.
type fakeSource struct{ name Kind }

func (s fakeSource) kind() Kind       { return s.name }
func (s fakeSource) describe() string { return string(s.name) }
func (fakeSource) start(context.Context, Config, int) (instance, error) {
	return nil, errors.ErrUnsupported
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
		{"a named server", fakeSource{Docker}, Want{Server: "redis-7.0"}, "redis-7.0 was asked for, and is not replaced by redis-8.0"},
	} {
		f := &Farm{host: &machine.Host{Log: io.Discard}, source: c.src, want: c.want, others: map[string]other{}}
		for range 2 {
			if _, err := f.Of(t.Context(), "redis-8.0"); !errors.Is(err, ErrImpossible) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Of, %s = %v, want ErrImpossible and %q", c.what, err, c.says)
			}
		}
	}
	f, err := Open(t.Context(), Want{Kind: Embedded})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Having(t.Context(), "redis-8.0", "WAITAOF"); !errors.Is(err, ErrImpossible) || !strings.Contains(err.Error(), "the servers know no WAITAOF") {
		t.Errorf("Having, embedded servers = %v, want ErrImpossible, and what they do not know", err)
	}
	if _, err := f.Of(t.Context(), "redis 8"); err == nil || errors.Is(err, ErrImpossible) {
		t.Errorf("Of redis 8 = %v, want that there is no such edition", err)
	}
}
