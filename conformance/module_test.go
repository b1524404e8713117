// The suite in a module of its own, as users of the suite have it.
package conformance_test

import (
	"os"
	"os/exec"
	"testing"
)

// TestAModuleOfItsOwn runs the suite as a stranger would: on a lock server over
// HTTP, in a module that depends on this one and sees nothing internal, with
// child processes.
func TestAModuleOfItsOwn(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-race", "-count=1", "./...")
	cmd.Dir = "testdata/httplock"
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go test in %s: %v\n%s", cmd.Dir, err, out)
	}
}
