package redistest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// forTests is the farm that Main opened: tests have no other way to it.
var forTests atomic.Pointer[Farm]

// Main is the body of a TestMain. It prints the choice as the first line, runs the
// tests, ends all servers, and exits:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// ready gets the shared server before the tests run, for examples, which have no other way to it.
func Main(m interface{ Run() int }, ready ...func(*Server)) { os.Exit(run(m, ready)) }

func run(m interface{ Run() int }, ready []func(*Server)) (code int) {
	flag.Parse()
	if l := flag.Lookup("test.list"); l != nil && l.Value.String() != "" {
		return m.Run() // for a program that reads the list, and wants nothing else
	}
	w, err := FromEnv()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	f, err := Open(context.Background(), w)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(f.Choice())
	forTests.Store(f)
	defer func() {
		if err := f.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	for _, use := range ready {
		s, err := f.Shared(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		use(s)
	}
	return m.Run()
}

func farm(t testing.TB) *Farm {
	t.Helper()
	f := forTests.Load()
	if f == nil {
		t.Fatal("redistest: no servers were chosen: this package needs func TestMain(m *testing.M) { redistest.Main(m) }")
	}
	// What Main read, go test has not seen: it watches only while tests run. Without
	// this, results on one server would pass, from its cache, for those on another.
	FromEnv() //nolint:errcheck // Main has checked it
	return f
}

// ForTests is the farm that Main opened, for packages that start servers for tests.
func ForTests(t testing.TB) *Farm {
	t.Helper()
	return farm(t)
}

// must ends the test, unless err is nil: it skips the test for what is impossible here, unless a
// kind of real server was demanded, and fails it for everything else.
func must(t testing.TB, f *Farm, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, ErrImpossible) && (f.want.Kind == "" || f.want.Kind == Embedded):
		t.Skipf("NOT PROVEN: what %s is about, for the servers it needs are not available: %v", t.Name(), err)
	default:
		t.Fatal(err)
	}
}

// Skip ends a test whose server cannot do what it takes (Freeze on an embedded one), naming what
// this leaves not proven. It does nothing if err is nil, and any other error fails the test.
func Skip(t testing.TB, err error, notProven string) {
	t.Helper()
	if errors.Is(err, ErrImpossible) {
		t.Skipf("NOT PROVEN: %s: %v", notProven, err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Shared is one server for all tests: use fresh keys, and leave others' alone.
func Shared(t testing.TB) *Server {
	t.Helper()
	f := farm(t)
	s, err := f.Shared(t.Context())
	must(t, f, err)
	return s
}

// Nodes are n independent servers for all tests, the first of them Shared's.
func Nodes(t testing.TB, n int) []*Server {
	t.Helper()
	s, err := TryNodes(t, n)
	Must(t, err)
	return s
}

// TryNodes is Nodes for a test of which only a part, named later by Must, needs them.
func TryNodes(t testing.TB, n int) ([]*Server, error) {
	t.Helper()
	return farm(t).Nodes(t.Context(), n)
}

// Must ends the test, unless err, of TryNodes, is nil: as Nodes does.
func Must(t testing.TB, err error) {
	t.Helper()
	must(t, farm(t), err)
}

// Own is a server for this test alone, to break. It ends with the test.
func Own(t testing.TB, c Config) *Server {
	t.Helper()
	return OwnOf(t, farm(t), c)
}

// OwnOf is Own, from a farm that the tests' Having or Of gave.
func OwnOf(t testing.TB, f *Farm, c Config) *Server {
	t.Helper()
	s, err := f.Start(t.Context(), c)
	must(t, f, err)
	end(t, s.Stop)
	return s
}

// end ends what a test has for itself.
func end(t testing.TB, fn func(context.Context) error) {
	t.Cleanup(func() {
		// Not t.Context(), which has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := fn(ctx); err != nil {
			t.Error(err)
		}
	})
}

// OwnCluster is a cluster for this test alone, to break. It ends with the test. Where there can be
// none (given or embedded servers, containers with a network of their own) the test is skipped.
func OwnCluster(t testing.TB, c ClusterConfig) *Cluster {
	t.Helper()
	f := farm(t)
	cl, err := f.StartCluster(t.Context(), c)
	must(t, f, err)
	end(t, cl.Stop)
	return cl
}

// Do sends one command to s, for tests that look at what a lock has written or put
// something in its way. An error ends the test.
func Do(t testing.TB, s *Server, cmd string, args ...any) any {
	t.Helper()
	c := s.Pool().Get()
	defer c.Close()
	reply, err := c.Do(cmd, args...)
	if err != nil {
		t.Fatalf("%s %v = %v", cmd, args, err)
	}
	return reply
}
