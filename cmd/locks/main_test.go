// Tests what the program refuses, and its help.
package main

import (
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/clitest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// other is what else the test binary may be: a command under a lock. It returns if it is not.
var other = func() {}

// program is what the test binary is in place of the tool.
var program = main

func TestMain(m *testing.M) {
	if clitest.Main(program) {
		return
	}
	other()
	redistest.Main(m)
}

func TestMisuse(t *testing.T) {
	for args, want := range map[string]string{
		"nope":           "unknown command nope: there are bootstrap, check, ",
		"inspec":         "unknown command inspec: did you mean inspect?",
		"--nope":         "unknown flag: --nope",
		"inspect --nope": "unknown flag: --nope\nSee 'locks inspect --help'.",
	} {
		clitest.Misuse(t, rootCommand(), args, want)
	}
}

func TestHelp(t *testing.T) {
	for args, wants := range map[string][]string{
		"":                {"Available Commands:", "inspect", "\n  man "},
		"--help":          {"Available Commands:", "inspect", "\n  man "},
		"exec --help":     {"locks exec nightly --try --", "LOCKS_FENCE", " 126  ", "--conflict-exit-code", "REDIS_PASSWORD"},
		"inspect --help":  {"--json", "Exit status: 0", "--tls-ca"},
		"help inspect":    {"Examples:"},
		"list --help":     {"--json", "--watch", "[PATTERN]", "SCAN", "Exit status: 0"},
		"watch --help":    {"--json", "--every", "Exit status: 130"},
		"release --help":  {"--force", "Exit status: 0", "--password-file"},
		"--version":       {"locks ", "go1."},
		"completion bash": {"bash completion"},
	} {
		clitest.Help(t, rootCommand(), args, wants, "exec-watch")
	}
}
