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
		"":                                  {"Commands:", "\n  inspect ", "\n  man ", "Topics, for 'locks help TOPIC':\n  servers     How", "\n  help "},
		"--help":                            {"Commands:", "\n  inspect "},
		"exec --help":                       {"locks exec nightly --try --", "LOCKS_FENCE", " 126  ", "--conflict-exit-code", "REDIS_PASSWORD"},
		"help servers":                      {"REDIS_URL", "rediss://", "REDIS_TLS_SERVER_NAME"},
		"servers":                           {"REDIS_URL"},
		"help":                              {"Usage: locks COMMAND"},
		"help help":                         {"Usage: locks help [COMMAND | TOPIC]"},
		"inspect --help":                    {"--json", "Exit status:\n   0", "--tls-ca"},
		"help inspect":                      {"Examples:"},
		"list --help":                       {"--json", "--watch", "[PATTERN]", "SCAN", "Exit status:\n   0"},
		"watch --help":                      {"--json", "--every", "Exit status:\n   2", " 130  after Ctrl-C"},
		"release --help":                    {"--force", "Exit status:\n   0", "--password-file"},
		"--version":                         {"locks ", "go1."},
		"completion bash":                   {"bash completion"},
		"completion fish --no-descriptions": {"fish completion"},
		"completion powershell":             {"Register-ArgumentCompleter"},
		"completion zsh":                    {"#compdef locks"},
	} {
		clitest.Help(t, rootCommand(), args, wants, "exec-watch")
	}
}
