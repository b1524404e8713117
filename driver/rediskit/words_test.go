// Tests how the error replies of servers are read. testdata/words has what each edition says: the test asks the server
// at hand, and "go test ./driver -run TestWordsOfServers -update" writes down what it says.
package rediskit_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

var update = flag.Bool("update", false, "write down what the server says")

// recorded is the file with the words of an edition, such as redis-7.0.
func recorded(edition string) string { return filepath.Join("testdata", "words", edition+".txt") }

// wordsOf asks a server for errors of all kinds. Each line is the code that the error has, the situation, and the words.
func wordsOf(t *testing.T) (lines []string) {
	t.Helper()
	hear := func(code, situation string, c redis.Conn, cmd string, args ...any) {
		t.Helper()
		_, err := c.Do(cmd, args...)
		var said redis.Error
		if !errors.As(err, &said) {
			t.Fatalf("%s: %s %v = %v, want an error of the server", situation, cmd, args, err)
		}
		lines = append(lines, code+"\t"+situation+"\t"+strings.TrimSpace(said.Error()))
	}
	// in hears the words for a command, alone, in a script, and in a script that catches the error and returns it.
	in := func(code, situation string, c redis.Conn, cmd, key string, args ...string) {
		t.Helper()
		plain := []any{key}
		call := "'" + cmd + "', '" + key + "'"
		for _, a := range args {
			plain = append(plain, a)
			call += ", '" + a + "'"
		}
		hear(code, situation, c, cmd, plain...)
		hear(code, situation+", in a script", c, "EVAL", "return redis.call("+call+")", 1, key)
		hear(code, situation+", caught", c, "EVAL", "local got = redis.pcall("+call+") return got", 1, key)
	}
	login := func(s *redistest.Server, rules ...any) redis.Conn {
		t.Helper()
		redistest.Do(t, s, "ACL", append([]any{"SETUSER", "u", "reset", "on", ">p"}, rules...)...)
		c := dialled(t, s)
		if _, err := c.Do("AUTH", "u", "p"); err != nil {
			t.Fatal(err)
		}
		return c
	}

	s := redistest.Own(t, redistest.Config{})
	c := dialled(t, s)
	redistest.Do(t, s, "RPUSH", "l", "x")
	in("WRONGTYPE", "another type", c, "GET", "l")
	for _, compare := range [][]any{{"DELEX", "l", "IFEQ", "x"}, {"DELIFEQ", "l", "x"}, {"SET", "l", "y", "IFEQ", "x"}} {
		if knows(t, s, compare) {
			hear("WRONGTYPE", strings.TrimSpace(fmt.Sprintln(compare...)), c, compare[0].(string), compare[1:]...)
		}
	}
	in("NOPERM", "a command is forbidden", login(s, "~*", "+@all", "-get"), "GET", "a")
	hear("NOPERM", "a key is forbidden", login(s, "~b", "+@all"), "GET", "a")
	hear("NOPERM", "a key is forbidden, in a script", login(s, "~b", "+@all"), "EVAL", "return redis.call('GET', 'a')", 0)
	hear("NOPERM", "a script's key is forbidden", login(s, "~b", "+@all"), "EVAL", "return 1", 1, "a")
	in("NOPERM", "a channel is forbidden", login(s, "~*", "resetchannels", "+@all"), "PUBLISH", "ch", "x")
	hear("ERR", "Lua", c, "EVAL", "return nil + 1", 0)
	hear("FENCE", "a script's own error", c, "EVAL", "return redis.error_reply('FENCE no number')", 0)
	redistest.Do(t, s, "CONFIG", "SET", "min-replicas-to-write", "1")
	in("NOREPLICAS", "too few replicas", c, "SET", "a", "x")
	redistest.Do(t, s, "CONFIG", "SET", "min-replicas-to-write", "0")
	redistest.Do(t, s, "CONFIG", "SET", "maxmemory", "1")
	in("OOM", "no memory", c, "SET", "a", "x")
	redistest.Do(t, s, "CONFIG", "SET", "maxmemory", "0")
	redistest.Do(t, s, "REPLICAOF", "127.0.0.1", "1")
	in("READONLY", "a replica", c, "SET", "a", "x")
	redistest.Do(t, s, "REPLICAOF", "NO", "ONE")
	hear("WRONGPASS", "a wrong password", dialled(t, s), "AUTH", "u", "wrong")
	redistest.Do(t, s, "ACL", "SETUSER", "default", ">p")
	redistest.Do(t, s, "ACL", "SETUSER", "default", "resetpass", ">p")
	hear("NOAUTH", "no password", dialled(t, s), "GET", "a")
	c.Do("ACL", "SETUSER", "default", "nopass")

	in2 := redistest.Own(t, redistest.Config{Args: []string{"--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"}})
	cl := dialled(t, in2)
	slot, err := redis.Int(cl.Do("CLUSTER", "KEYSLOT", "a"))
	if err != nil {
		t.Fatal(err)
	}
	redistest.Do(t, in2, "CLUSTER", "ADDSLOTS", slot)
	verdict.Eventually(t, "the node is up", func() bool { _, err := cl.Do("GET", "a"); return err == nil })
	hear("UNKNOWN", "a slot that nobody serves, after a write", cl, "EVAL", "redis.call('SET', KEYS[1], 'x') return redis.call('GET', 'b')", 1, "a")

	cluster := redistest.OwnCluster(t, redistest.ClusterConfig{})
	owner, err := cluster.OwnerOf(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	cl = dialled(t, owner)
	theirs, other := "", owner
	for i := 0; other == owner; i++ {
		theirs = fmt.Sprint("b", i)
		if other, err = cluster.OwnerOf(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
	}
	hear("UNKNOWN", "a key of another node, after a write", cl, "EVAL", "redis.call('SET', KEYS[1], 'x') return redis.call('GET', '"+theirs+"')", 1, "a")
	if _, err := cluster.BeginMove(t.Context(), slot, other); err != nil {
		t.Fatal(err)
	}
	hear("UNKNOWN", "a key that a script has deleted, in a slot that moves", cl, "EVAL", "redis.call('DEL', KEYS[1]) return redis.call('GET', KEYS[1])", 1, "a")
	return lines
}

func dialled(t *testing.T, s *redistest.Server) redis.Conn {
	t.Helper()
	c, err := redis.DialURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// knows reports whether the server has the command: it does not call it unknown, or a syntax error.
func knows(t *testing.T, s *redistest.Server, command []any) bool {
	t.Helper()
	_, err := dialled(t, s).Do(command[0].(string), append([]any{"nothing"}, command[2:]...)...)
	return err == nil || !strings.Contains(err.Error(), "unknown command") && !strings.Contains(err.Error(), "syntax error")
}

// hash is that of a script.
var hash = regexp.MustCompile(`[0-9a-f]{40}`)

// TestWordsOfServers: the server at hand says what is written down for its edition.
func TestWordsOfServers(t *testing.T) {
	edition := editionOf(redistest.Shared(t).Version())
	lines := strings.Join(wordsOf(t), "\n") + "\n"
	if *update {
		if err := os.WriteFile(recorded(edition), []byte(lines), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(recorded(edition))
	if os.IsNotExist(err) {
		t.Skipf("NOT PROVEN: what %s says in error replies is not written down", edition)
	}
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != lines {
		t.Errorf("%s says\n%s\nwritten down is\n%s", edition, lines, want)
	}
}

// words62 are those of Redis 6.2 (src/scripting.c, src/acl.c): no test server has this version. A script that raises an error
// has its line before it.
const words62 = `
WRONGTYPE	another type	WRONGTYPE Operation against a key holding the wrong kind of value
WRONGTYPE	another type, in a script	ERR Error running script (call to f_de61aaeedfe174b324f647ebb513c4f1457f999c): @user_script:1: WRONGTYPE Operation against a key holding the wrong kind of value
NOPERM	a command is forbidden	NOPERM this user has no permissions to run the 'get' command or its subcommand
NOPERM	a command is forbidden, in a script	ERR Error running script (call to f_f6c7d565b552c0fa2a370fc29ebc6aeb21dc4eee): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand
NOPERM	a command is forbidden, caught	@user_script: 1: The user executing the script can't run this command or subcommand
NOPERM	a key is forbidden, caught	@user_script: 1: The user executing the script can't access at least one of the keys mentioned in the command arguments
OOM	no memory	OOM command not allowed when used memory > 'maxmemory'.
OOM	no memory, in a script	ERR Error running script (call to f_2f08181feda6b6576845a8b6956adfe674b4d980): @user_script:1: @user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.
READONLY	a replica	READONLY You can't write against a read only replica.
READONLY	a replica, in a script	ERR Error running script (call to f_2f08181feda6b6576845a8b6956adfe674b4d980): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.
READONLY	a replica, caught	@user_script: 1: -READONLY You can't write against a read only replica.
MISCONF	no disk, in a script	ERR Error running script (call to f_2f08181feda6b6576845a8b6956adfe674b4d980): @user_script:1: @user_script: 1: -MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.
NOREPLICAS	too few replicas, in a script	ERR Error running script (call to f_2f08181feda6b6576845a8b6956adfe674b4d980): @user_script:1: @user_script: 1: -NOREPLICAS Not enough good replicas to write.
UNKNOWN	a key of another node, after a write	ERR Error running script (call to f_15ce99af9b13c11c75cbca0b9526aa61f67b5bd5): @user_script:1: @user_script: 1: Lua script attempted to access a non local key in a cluster node
UNKNOWN	the cluster is down, after a write	ERR Error running script (call to f_15ce99af9b13c11c75cbca0b9526aa61f67b5bd5): @user_script:1: @user_script: 1: Lua script attempted to execute a command while the cluster is down
FENCE	a script's own error	FENCE no number
`

// TestWords: what each server says is read in the same way, also as a client gives it that takes "ERR " off.
func TestWords(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(recorded("*"))
	if err != nil || len(files) < 5 {
		t.Fatalf("what servers say = %v, %v, want the words of five editions", files, err)
	}
	said := map[string]string{"redis-6.2": words62}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		said[strings.TrimSuffix(filepath.Base(f), ".txt")] = string(text)
	}
	for edition, text := range said {
		for line := range strings.Lines(strings.TrimSpace(text)) {
			code, rest, _ := strings.Cut(strings.TrimSpace(line), "\t")
			situation, whole, _ := strings.Cut(rest, "\t")
			for _, words := range []string{whole, strings.TrimPrefix(whole, "ERR ")} {
				reason := rediskit.Reason(words)
				kind := strategy.ErrRefused
				if code == "UNKNOWN" {
					kind = strategy.ErrUnknown
				}
				err := rediskit.ErrorReply("n", errors.New(words))
				if advised := strings.HasSuffix(rediskit.Reason(err.Error()), " (TYPE of the lock's key, or of one that belongs to it, says what is there)"); !errors.Is(err, kind) || advised != (code == "WRONGTYPE") {
					t.Errorf("%s, %s: %v, want %v, and advice where the type is wrong", edition, situation, err, kind)
				}
				if strings.Contains(reason, "@user_script") || strings.Contains(reason, "script: ") && !strings.Contains(reason, "in script: ") || hash.MatchString(reason) {
					t.Errorf("%s, %s: the reason is %q, want it without the place in a script", edition, situation, reason)
				}
				for name, got := range map[string]bool{
					"WRONGTYPE": rediskit.WrongType(words), "NOPERM": rediskit.Forbidden(words), "READONLY": rediskit.ReadOnly(errors.New(words)),
				} {
					if got != (code == name) {
						t.Errorf("%s, %s: %q is read as %s: %t", edition, situation, words, name, got)
					}
				}
				if slices.Contains([]string{"OOM", "READONLY", "MISCONF", "NOREPLICAS", "FENCE", "WRONGPASS", "NOAUTH"}, code) && !strings.HasPrefix(reason, code+" ") {
					t.Errorf("%s, %s: the reason is %q, want %s first", edition, situation, reason, code)
				}
			}
		}
	}
}

// editionOf is the name of an edition as REDIS_SERVER has it: of Redis 7.0.15, redis-7.0.
func editionOf(version string) string {
	product, number, _ := strings.Cut(strings.ToLower(version), " ")
	major, rest, _ := strings.Cut(number, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return product + "-" + major + "." + minor
}

// TestNoScript: only a refusal says for sure that the server does not have the script.
func TestNoScript(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{refusal(strategy.ErrRefused, "NOSCRIPT No matching script."), true},
		{refusal(strategy.ErrRefused, "ERR NOSCRIPT "), false},
		{refusal(strategy.ErrUnknown, "NOSCRIPT No matching script."), false}, // who knows what else happened
		{&strategy.ServerError{Kind: strategy.ErrRefused}, false},
		{errors.New("NOSCRIPT "), false},
	} {
		equal(t, fmt.Sprintf("NoScript(%v)", tt.err), rediskit.NoScript(tt.err), tt.want)
	}
}

// TestUsers: a node that strategies share is closed with the last of them, and one that nobody uses at once.
func TestUsers(t *testing.T) {
	var u rediskit.Users
	u.Use()
	u.Use()
	if u.Leave() {
		t.Error("Leave() = true, want that one strategy still uses the node")
	}
	for range 2 { // Close may be called twice
		if !u.Leave() {
			t.Error("Leave() = false, want that nobody uses the node")
		}
	}
	if fresh := new(rediskit.Users); !fresh.Leave() {
		t.Error("Leave() of a node that nobody has used = false, want true")
	}
}
