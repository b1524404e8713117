package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/lockstrategies/locks/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// nodes is on how many servers an algorithm that needs several is judged.
const nodes = 5

// servers are the URLs of those on which all algorithms are judged.
func servers(t *testing.T) (urls []string) {
	for _, s := range redistest.Nodes(t, nodes) {
		urls = append(urls, s.URL())
	}
	return urls
}

// verdicts are kept for further counts: the sources do not change meanwhile.
var verdicts sync.Map // of func() string, by Mutant.Name

// atOnce bounds how many are compiled and judged at a time.
var atOnce = make(chan struct{}, 2)

func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	urls := servers(t)
	for _, m := range All() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			verdict, _ := verdicts.LoadOrStore(m.Name, sync.OnceValue(func() string {
				atOnce <- struct{}{}
				defer func() { <-atOnce }()
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
		properties[m.Judge] = append(properties[m.Judge], m.Killed...)
	}
	for j, names := range properties {
		t.Run(j.Test, func(t *testing.T) {
			t.Parallel()
			verdict, _ := verdicts.LoadOrStore(j, sync.OnceValue(func() string {
				atOnce <- struct{}{}
				defer func() { <-atOnce }()
				out, err := hold(root, urls, j, names)
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
	if n := strings.Count(string(source), m.Old); n != 1 {
		return fmt.Sprintf("%s has %q %d times, want once: put the mutant right", m.File, m.Old, n)
	}
	broken := filepath.Join(dir, "broken"+filepath.Ext(file))
	overlay := filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: broken}})
	if err != nil {
		return err.Error()
	}
	for name, content := range map[string][]byte{
		broken:  []byte(strings.Replace(string(source), m.Old, m.New, 1)),
		overlay: replace,
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return err.Error()
		}
	}
	out, err := hold(root, urls, m.Judge, m.Killed, "-overlay="+overlay)
	// What does not compile has not been judged.
	if strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]") {
		return fmt.Sprintf("the mutant does not compile:\n%s", out)
	}
	if err == nil {
		return fmt.Sprintf("acquitted, want convicted by %v:\n%s", m.Killed, out)
	}
	for _, property := range m.Killed {
		if !strings.Contains(out, "--- FAIL: "+m.Judge.Test+"/"+property+" ") {
			return fmt.Sprintf("acquitted by %s, want convicted:\n%s", property, out)
		}
	}
	return ""
}

// hold runs the judge's subtests for these properties, and no others.
func hold(root string, urls []string, j Judge, properties []string, flags ...string) (out string, err error) {
	var pattern []string
	for part := range strings.SplitSeq(j.Test, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	pattern = append(pattern, "^("+strings.Join(properties, "|")+")$")
	args := append([]string{"test", "-vet=off", "-count=1", "-timeout=3m", "-v", "-parallel=8"}, flags...)
	cmd := exec.Command("go", append(args, "-run="+strings.Join(pattern, "/"), j.Package)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "REDIS_ADDRS="+strings.Join(urls, ","), "REDIS_KIND="+string(redistest.Given), "CONFORMANCE_PATIENCE=3s")
	b, err := cmd.CombinedOutput()
	return string(b), err
}
