package contender_test

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/redistest"
)

// TestChildrenDieWithTheirParent: also when it is killed while they stand still.
func TestChildrenDieWithTheirParent(t *testing.T) {
	addr := redistest.Shared(t).Addr()
	cmd := exec.Command(must[string](t)(os.Executable()))
	cmd.Env = append(os.Environ(), parentVar+"="+addr)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Errorf("the parent said %q: %v", line, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for pid := range strings.FieldsSeq(line) {
		n, err := strconv.Atoi(pid)
		check(t, err)
		for end := time.Now().Add(limit); syscall.Kill(n, 0) == nil; time.Sleep(time.Millisecond) {
			if state, _ := exec.Command("ps", "-o", "state=", "-p", pid).Output(); strings.HasPrefix(string(state), "Z") {
				break // nobody reaps it, but it is dead
			}
			if time.Now().After(end) {
				t.Errorf("process %s lives on without its parent", pid)
				break
			}
		}
	}
}
