// Tests what the program refuses, and its help.
package main

import (
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/clitest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
)

// program is what the test binary is in place of the tool.
var program = main

func TestMain(m *testing.M) {
	if !clitest.Main(program) {
		redistest.Main(storetest.Tests{M: m})
	}
}

func TestHelp(t *testing.T) {
	for args, wants := range map[string][]string{
		"":                  {"Commands:", "\n  inspect ", "\n  man ", "Topics, for 'locks help TOPIC':\n  servers     How", "\n  help "},
		"--help":            {"Commands:", "\n  inspect "},
		"exec --help":       {"locks exec nightly --try --", "LOCKS_FENCE", " 126  ", "--conflict-exit-code", "REDIS_PASSWORD"},
		"exec a --help":     {"Usage: locks exec NAME"}, // wherever exec takes flags
		"exec a -h -- true": {"Usage: locks exec NAME"},
		"exec a --try -h":   {"Usage: locks exec NAME"},
		"help servers":      {"REDIS_URL", "rediss://", "REDIS_TLS_SERVER_NAME"},
		"servers":           {"REDIS_URL"},
		"help":              {"Usage: locks COMMAND"},
		"help help":         {"Usage: locks help [COMMAND | TOPIC]"},
		"help inspect":      {"Examples:", "--json", "--tls-ca"},
		"watch --help":      {" 130  after Ctrl-C"},
		"--version":         {"locks ", "go1."},
		"completion bash":   {"bash completion"},
	} {
		if errNoExec == nil || !strings.HasPrefix(args, "exec a") {
			clitest.Help(t, rootCommand(), args, wants, "exec-watch")
		}
	}
}
