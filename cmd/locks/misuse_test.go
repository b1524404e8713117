// Tests what the tool says of arguments and flags that it refuses.
package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstrategies/locks/internal/testkit/clitest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// commands are all that users run.
func commands() (all []*cobra.Command) {
	root := rootCommand()
	root.InitDefaultHelpCmd()
	return append(slices.DeleteFunc(root.Commands(), func(c *cobra.Command) bool { return c.Hidden || !c.Runnable() }), root)
}

// path is how to call a command.
func path(cmd *cobra.Command) string {
	return strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "locks"), " ")
}

// TestMisuseOfFlags: each flag of each command has a word for its value, and says what is allowed.
func TestMisuseOfFlags(t *testing.T) {
	t.Setenv(redisVar, "")
	seen := map[string]bool{}
	for _, cmd := range commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			kind, flag := f.Value.Type(), path(cmd)+" --"+f.Name
			seen[kind] = true
			switch kind {
			case "bool":
				return
			case "time":
				clitest.Misuse(t, rootCommand(), flag+" a", `flag: allowed are seconds, such as 90`)
			case "number":
				for _, not := range []string{"a", "-7", "1.5", "99999999999999999999"} {
					clitest.Misuse(t, rootCommand(), flag+" "+not, `"`+not+`" for `)
					clitest.Misuse(t, rootCommand(), flag+" "+not, "flag: allowed are ")
				}
			case "string", "stringArray": // any text
			default:
				t.Errorf("%s is a %s: want a type whose errors say what is allowed", flag, kind)
			}
			if what, _ := pflag.UnquoteUsage(f); what == "" || what == "string" || what == "stringArray" {
				t.Errorf("%s: its value is a %q: want a word for it, in backquotes", flag, what)
			}
			clitest.Misuse(t, rootCommand(), flag, "flag needs an argument: --"+f.Name)
		})
		if cmd.Name() == "exec" || cmd.Name() == "locks" {
			continue
		}
		clitest.Misuse(t, rootCommand(), path(cmd)+" a b c", cmd.Name())
		if strings.Contains(cmd.Use, " ") && !strings.Contains(cmd.Use, " [") {
			clitest.Misuse(t, rootCommand(), path(cmd), "locks "+cmd.Use)
		}
	}
	if len(seen) < 5 {
		t.Errorf("the flags are of the types %v: the test has lost its sight", seen)
	}
}

// TestMisuse: what the tool says of arguments and flags that it refuses.
func TestMisuse(t *testing.T) {
	t.Setenv(redisVar, "")
	dir := t.TempDir()
	empty, text := filepath.Join(dir, "empty"), filepath.Join(dir, "text")
	redistest.Must(t, os.WriteFile(empty, []byte("\nsecret\n"), 0o600))
	redistest.Must(t, os.WriteFile(text, []byte("x\n"), 0o600))
	const three = " --redis a --redis b --redis c"
	for _, c := range []struct{ args, want string }{
		{"nope", "unknown command \"nope\" for \"locks\"\nSee 'locks --help'."},
		{"nope --help", "unknown command \"nope\""},
		{"inspec -h", "unknown command \"inspec\" for \"locks\"\n\nDid you mean this?\n\tinspect\n"},
		{"lst --json", "unknown command \"lst\""},
		{"help nope", "unknown command \"nope\""},
		{"inspect --nope", "unknown flag: --nope\nSee 'locks inspect --help'."},

		{"inspect", "want the lock's name, and no other argument: locks inspect NAME (a text with spaces needs quotes)\n"},
		{"inspect a b", "want the lock's name, and no other argument: locks inspect NAME "},
		{"watch " + strings.Repeat("x", 1025) + " --redis a", "the lock's name has 1025 bytes: allowed are 1 to 1024"},
		{"watch a --every 0 --redis a", "--every is 0s: allowed are 10ms and more"},
		{"check a", "check takes flags, and no argument such as a: locks check [flags]\n"},
		{"check --redis http://:secret@a:1", "--redis: an address that begins with http://; allowed are "},
		{"check --max-ttl 10s --redis a", "--max-ttl with fairqueue: only redlock has it"},
		{"check --redis a --tls --tls-cert " + text + " --tls-key " + text, "--tls-cert and --tls-key: want a certificate and its key, in PEM: "},
		{"bootstrap a:1", "bootstrap takes flags, and no argument such as a:1: locks bootstrap [flags]\n"},
		{"bootstrap --redis a --redis b", "redlock takes 3 servers or more"},
		{"release a --strategy semaphore --redis a", "--strategy semaphore without --permits"},
		{"list a b", "want one pattern at most, but there are 2 arguments: locks list [PATTERN] (a text with spaces or * needs quotes)\n"},
		{"list --every 2s --redis a", "--every without --watch: the list is printed once"},
		{"list --watch --every 1ms --redis a", "--every is 1ms: allowed are 10ms and more"},
		{"script acquire", "there is no script acquire in this version: 'locks script' lists all"},
		{"script fairqueue/acquires", "there is no script fairqueue/acquires in this version"},
		{"script aad9a77", "there is no script aad9a77 in this version"},
		{"script " + strings.Repeat("0", 40), "there is no script 0000"},
		{"script a b", "want one script at most"},

		{"exec", "want the lock's name and the command"},
		{"exec -- true", "want the lock's name and the command"},
		{"exec a", "there is no command"},
		{"exec a --", "there is no command"},
		{"exec a true --try", "--try stands behind the command true, and is a flag of exec, too: write it before --, or write -- before the command: locks exec NAME [flags] -- COMMAND"},
		{"exec a echo x --wait=5s", "--wait stands behind the command echo"},
		{"exec a echo --help", "--help stands behind the command echo"},
		{"exec a -- echo --try", "which Redis?"},
		{"exec a sh -- --try", "which Redis?"},
		{"exec a find -n -name --tryit -", "which Redis?"},
		{"exec a --nope true", "unknown flag: --nope"},
		{"exec a --wait -- true", "allowed are seconds, such as 90"},
		{"exec a --wait soon -- true", "\"soon\" for \"-w, --wait\" flag: allowed are seconds, such as 90 or 0.5, and times such as 90s, 2m or 300ms"},
		{"exec a -v -q -- true", "--verbose and --quiet exclude each other"},
		{"exec a --try --wait 1s -- true", "--wait and --try exclude each other"},
		{"exec a --fail-fast -- true", "--fail-fast without --wait: without it exec ends at once in any case"},
		{"exec a --wait 0s -- true", "--wait is 0s: allowed is more than 0"},
		{"exec a --ttl 1ms -- true", "--ttl is 1ms: allowed are whole milliseconds from 10ms to 24h0m0s"},
		{"exec a --ttl 1m --max-hold 30s -- true", "--max-hold is 30s: allowed are the TTL of 1m0s and more"},
		{"exec a --max-ttl 1m --redis a -- true", "--max-ttl with fairqueue: only redlock has it"},
		{"exec a --max-ttl 10s --strategy redlock" + three + " -- true", "--max-ttl is 10s: allowed are whole milliseconds from 30s to 24h0m0s"},
		{"exec a --permits 5 --strategy fairqueue --redis a -- true", "--permits with fairqueue: only semaphore has them"},
		{"exec a --permits 0 --redis a -- true", "\"0\" for \"--permits\" flag: allowed are 1 to 1000000"},
		{"exec a --permits 1000001 --redis a -- true", "allowed are 1 to 1000000"},
		{"exec a --strategy semaphore --redis a -- true", "--strategy semaphore without --permits: how many may hold the lock at a time?"},
		{"exec a --at-least 0s -- true", "--at-least is 0s: allowed are whole milliseconds from 10ms to 24h0m0s"},
		{"exec a --at-least 25h -- true", "--at-least is 25h0m0s: allowed are"},
		{"exec a --at-least 10.5ms -- true", "--at-least is 10.5ms: allowed are"},
		{"exec a --at-least 2m --max-ttl 1m --strategy redlock" + three + " -- true", "--at-least is 2m0s: allowed is --max-ttl, 1m0s, at most"},
		{"exec a --at-least 1s --permits 5 --redis a -- true", "--at-least and --permits exclude each other"},
		{"exec a --at-least 1s --read --redis a -- true", "--at-least and --read exclude each other"},
		{"exec a --read --write --redis a -- true", "--read and --write exclude each other"},
		{"exec a --read --strategy fairqueue --redis a -- true", "--read with fairqueue: only rwlock has readers and writers"},
		{"exec a --write --permits 5 --redis a -- true", "--write with semaphore: only rwlock has readers and writers"},
		{"exec a --permits 5 --strategy rwlock --redis a -- true", "--permits with rwlock: only semaphore has them"},
		{"exec " + strings.Repeat("x", 1016) + " --at-least 1s -- true", "the lock's name has 1016 bytes: with --at-least allowed are 1 to 1015"},
		{"exec a --grace -1s -- true", "--grace is -1s: allowed are 0 (SIGKILL at once) and more"},
		{"exec a -E 256 -- true", "allowed are 0 to 255"},
		{"exec a --label " + strings.Repeat("x", 257) + " -- true", "--label has 257 bytes: allowed are "},
		{"exec " + strings.Repeat("x", 1025) + " -- true", "the lock's name has 1025 bytes: allowed are 1 to 1024"},

		{"inspect a", "which Redis? Give --redis or set REDIS_URL"},
		{"inspect a --read --redis a", "unknown flag: --read"},
		{"inspect a --redis=", "an address without a host"},
		{"inspect a --redis localhost:0", "an address without a host, or with a port that is none"},
		{"inspect a --redis localhost:redis", "an address cannot be read"},
		{"inspect a --redis http://localhost", "an address that begins with http://"},
		{"inspect a --redis unix://relative", "a unix address without a path"},
		{"inspect a --redis redis://localhost/x", "whose path is no database's number"},
		{"inspect a --redis redis://localhost?password=secret", "an address with a ? or #"},
		{"inspect a --redis redis://me:secret@localhost", "--redis has a password, and everybody on this machine can read arguments"},
		{"inspect a --redis me:secret@localhost:6379", "--redis has a password"},
		{"inspect a --redis me:secret@/tmp/redis.sock", "an address without a host"},
		{"inspect a --redis redis://:sec%ret@localhost", "an address cannot be read"},
		{"inspect a --redis me@localhost", "there is a user and no password"},
		{"inspect a --redis localhost --user me", "there is a user and no password"},
		{"inspect a --redis localhost --redis localhost", "fairqueue takes one server, --redis names 2"},
		{"inspect a --redis localhost --strategy redlock", "redlock takes 3 servers or more, --redis names 1"},
		{"inspect a --redis localhost --strategy nope", `there is no strategy "nope": there are setnxgetset, `},
		{"inspect a --redis localhost --db -1", "allowed are 0 and more"},
		{"inspect a --redis localhost --password-file " + empty, "the first line is empty"},
		{"inspect a --redis localhost --password-file /there/is/none", "--password-file: open /there/is/none"},
		{"inspect a --redis localhost --tls-ca " + empty, "--tls-ca without TLS"},
		{"inspect a --redis localhost --tls --tls-ca " + empty, "there is no certificate in"},
		{"inspect a --redis localhost --tls --tls-cert " + empty, "needs both --tls-cert and --tls-key"},
		{"inspect a --redis /tmp/redis.sock --tls", "--tls with a Unix socket"},

		{"exec-watch", "only locks exec starts exec-watch\n"},
		{"exec-watch 1s", "only locks exec starts exec-watch\n"},
		{"exec-watch 1s 2 3", "only locks exec starts exec-watch\n"},
		{"exec-watch a 1", "only locks exec starts exec-watch\n"},
		{"exec-watch 1s b", "only locks exec starts exec-watch\n"},
	} {
		if errNoExec != nil && strings.HasPrefix(c.args, "exec") {
			continue
		}
		if errs := clitest.Misuse(t, rootCommand(), c.args, c.want); strings.Contains(errs, "sec") && strings.Contains(c.args, "sec") {
			t.Errorf("locks %s: the password is in %q", c.args, errs)
		}
	}
	if err := exactlyOne("the directory")(manCommand(), []string{""}); err == nil || !strings.HasPrefix(err.Error(), "want the directory, and no other argument: man DIRECTORY") {
		t.Errorf("an empty argument: %v, want that it is refused", err)
	}
	if err := (&listing{}).check(listCommand(), []string{""}); err == nil || !strings.Contains(err.Error(), "leave it out to list all locks") {
		t.Errorf("an empty pattern: %v, want that it is refused", err)
	}
}
