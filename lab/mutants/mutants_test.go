package mutants

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "16") // the limits are below; -parallel says otherwise
	redistest.Main(m)
}

// What is compiled keeps a processor busy, and so does starting servers; what is judged
// on those that are there mostly waits.
var (
	compiling = make(chan struct{}, runtime.GOMAXPROCS(0))
	starting  = make(chan struct{}, 2)
	judging   = make(chan struct{}, 6)
)

// nodes is on how many servers an algorithm that needs several is judged.
const nodes = 5

// servers are the URLs of those on which all algorithms are judged.
func servers(t *testing.T) (urls []string) {
	all := redistest.Nodes(t, nodes)
	if _, err := subjects.Bootstrap(t.Context(), subjects.All(), all); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		urls = append(urls, s.URL())
	}
	return urls
}

// breakable skips a judge that breaks servers where there are none to break.
func breakable(t *testing.T, j Judge) {
	t.Helper()
	if j.Starts {
		s := redistest.Own(t, redistest.Config{})
		if strings.Contains(s.Version(), "not told") {
			t.Skip("NOT PROVEN: what " + j.Test + " judges, which takes real servers")
		}
	}
}

// verdicts are kept for further counts: the sources do not change meanwhile.
var verdicts sync.Map // of func() string, by Mutant.Name, or by Judge

func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	urls := servers(t)
	for _, m := range All() {
		t.Run(m.Name(), func(t *testing.T) {
			t.Parallel()
			breakable(t, m.Judge)
			verdict, _ := verdicts.LoadOrStore(m.Name(), sync.OnceValue(func() string {
				return judge(root, urls, m, t.TempDir())
			}))
			if complaint := verdict.(func() string)(); complaint != "" {
				t.Error(complaint)
			}
		})
	}
}

// TestSound is the control: without a fault every judge acquits, in every property
// that convicts a mutant. So it was the fault that was convicted, and not a server
// that could not be reached.
func TestSound(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	urls := servers(t)
	properties := map[Judge][]string{}
	for _, m := range All() {
		properties[m.Judge] = append(properties[m.Judge], m.Properties()...)
	}
	for j, names := range properties {
		t.Run(j.Test, func(t *testing.T) {
			t.Parallel()
			breakable(t, j)
			verdict, _ := verdicts.LoadOrStore(j, sync.OnceValue(func() string {
				binary := filepath.Join(t.TempDir(), "sound.test")
				if out, err := compile(root, j.Package, binary); err != nil {
					return fmt.Sprintf("does not compile:\n%s", out)
				}
				out, err := hold(root, urls, binary, j, names)
				if err != nil {
					return fmt.Sprintf("convicted without a fault:\n%s", out)
				}
				for _, name := range names {
					if !strings.Contains(out, "--- PASS: "+j.Test+"/"+name+" ") {
						return fmt.Sprintf("%s was not judged:\n%s", name, out)
					}
				}
				return ""
			}))
			if complaint := verdict.(func() string)(); complaint != "" {
				t.Error(complaint)
			}
		})
	}
}

// judge puts the fault in and holds the trials. The empty string means that every
// property convicted it.
func judge(root string, urls []string, m Mutant, dir string) (complaint string) {
	file := filepath.Join(root, m.File)
	source, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	faulty, err := m.Apply(string(source))
	if err != nil {
		return err.Error()
	}
	broken := filepath.Join(dir, "broken"+filepath.Ext(file))
	overlay := filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: broken}})
	if err != nil {
		return err.Error()
	}
	for name, content := range map[string][]byte{
		broken:  []byte(faulty),
		overlay: replace,
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return err.Error()
		}
	}
	binary := filepath.Join(dir, "broken.test")
	if out, err := compile(root, m.Judge.Package, binary, "-overlay="+overlay); err != nil {
		return fmt.Sprintf("the mutant does not compile, so it has not been judged:\n%s", out)
	}
	defer os.Remove(binary) // there are many, of a dozen megabytes each
	out, err := hold(root, urls, binary, m.Judge, m.Properties())
	if err == nil {
		return fmt.Sprintf("acquitted, want convicted by %v:\n%s", m.Killed, out)
	}
	for _, property := range m.Properties() {
		if !strings.Contains(out, "--- FAIL: "+m.Judge.Test+"/"+property+" ") {
			return fmt.Sprintf("acquitted by %s, want convicted:\n%s", property, out)
		}
	}
	return ""
}

// compile makes a test binary of a package.
func compile(root, pkg, binary string, flags ...string) (out string, err error) {
	compiling <- struct{}{}
	defer func() { <-compiling }()
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s", "-o", binary}, flags...)
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Dir = filepath.Join(root, pkg) // it may be in either module
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// hold runs the judge's subtests for these properties, and no others.
func hold(root string, urls []string, binary string, j Judge, properties []string) (out string, err error) {
	slots := judging
	if j.Starts {
		slots = starting
	}
	slots <- struct{}{}
	defer func() { <-slots }()
	var pattern []string
	for part := range strings.SplitSeq(j.Test, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	pattern = append(pattern, "^("+strings.Join(properties, "|")+")$")
	cmd := exec.Command(binary, "-test.timeout=3m", "-test.v", "-test.parallel=8", "-test.run="+strings.Join(pattern, "/"))
	cmd.Dir = filepath.Join(root, j.Package) // as go test has it
	cmd.Env = append(os.Environ(), "CONFORMANCE_PATIENCE=3s")
	if !j.Starts {
		cmd.Env = append(cmd.Env, "REDIS_ADDRS="+strings.Join(urls, ","), "REDIS_KIND="+string(redistest.Given))
	}
	b, err := cmd.CombinedOutput()
	return string(b), err
}
