// Package scripttest plays tables of what a Lua script does on a real server: each row says which keys
// there are before, and the script's reply, its messages and all keys after it.
package scripttest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// Same is the After of a row whose script changes nothing.
const Same = "same"

// A Row is one call of a script. Its texts are words between spaces; a word in single quotes may have spaces.
// Lines end at a ";". #n is a time in microseconds, n from now, as a fence is; @n one in milliseconds.
type Row struct {
	Name string

	// Before and After are all keys in their order, each as the command that makes it: SET, RPUSH, HSET
	// or ZADD, whose members stand in the order of their scores. "PX n" at its end is the TTL in
	// milliseconds; without PX the key has none.
	Before, After string

	Keys, Args string // KEYS and ARGV

	// Reply is an integer, a text, nil, an array in [], or "-" and an error. Of an error of the
	// server's own (WRONGTYPE, OOM, ERR) it is the first word.
	Reply string

	Heard string // the messages published: in each line a channel and a text
	Runs  string // the commands that the script runs; empty: not compared

	Listening string // the channels that have a listener
	Forbid    string // commands that the user may not run: SET, or SET/key for that key alone; between " | " others, each a row of its own
	Lapsed    string // commands that come so late that their key has lapsed
	Old       bool   // as before Redis 7.0: no acl_check_cmd, and errors are raised as texts
	OOM       bool   // the server is out of memory
}

// early is the reply of TIME: in a second and in a millisecond, where the microseconds of the clock begin with zeros.
var early = []string{"1700000000", "42"}

//go:embed play.lua
var play string

// On completes rows: keys and args are those of each row that has none.
func On(keys, args string, rows ...Row) []Row {
	for i := range rows {
		r := &rows[i]
		if r.Keys == "" {
			r.Keys = keys
		}
		if r.Args == "" {
			r.Args = args
		}
	}
	return rows
}

// Run plays the rows, on a server of their own: each twice, the second time as on a replica, which refuses what writes. There a
// script may answer with an error alone, because what a replica has may be out of date.
func Run(t *testing.T, script *driver.Script, rows []Row) {
	t.Helper()
	run(t, script, rows, true)
}

// RunAnywhere plays the rows of a script that may answer on a replica, too.
func RunAnywhere(t *testing.T, script *driver.Script, rows []Row) {
	t.Helper()
	run(t, script, rows, false)
}

func run(t *testing.T, script *driver.Script, rows []Row, replica bool) {
	t.Helper()
	s := redistest.Own(t, redistest.Config{})
	c := s.Pool().Get()
	t.Cleanup(func() { c.Close() })
	if able, err := redis.Bool(c.Do("EVAL", "return redis.acl_check_cmd and 1 or 0", 0)); err != nil || !able {
		t.Skipf("NOT PROVEN: what each branch of the script %s does: this server's scripts are not those of Redis 7.0 (%v)", script.Name(), err)
	}
	writes, err := redis.Strings(c.Do("COMMAND", "LIST", "FILTERBY", "ACLCAT", "write"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range apart(rows) {
		t.Run(r.Name, func(t *testing.T) {
			t.Helper()
			got, slack := r.play(t, c, script.Source(), nil)
			want := outcome{reply: r.Reply, after: lines(r.After), heard: lines(r.Heard)}
			if r.After == Same {
				want.after = lines(r.Before)
			}
			compare(t, "reply", got.reply, want.reply, slack)
			compare(t, "keys after", got.after, want.after, slack)
			compare(t, "messages", got.heard, want.heard, slack)
			if r.Runs != "" {
				compare(t, "commands", got.ran, r.Runs, 0)
			}
			if !replica || r.OOM || r.Lapsed != "" {
				return
			}
			if got, _ := r.play(t, c, script.Source(), writes); !isError(got.raw) || got.reply == "-ERR" {
				t.Errorf("a replica answers %s, want an error with its own first word", got.reply)
			}
		})
	}
}

// apart makes a row of each set of commands that a row forbids.
func apart(rows []Row) (all []Row) {
	for _, r := range rows {
		for forbid := range strings.SplitSeq(r.Forbid, " | ") {
			one := r
			if one.Forbid = forbid; forbid != r.Forbid {
				one.Name += ": " + forbid
			}
			all = append(all, one)
		}
	}
	return all
}

// isError reports whether a reply is an error, or an array of errors: that of a joint script, or of one that extends, for which
// an error is an array of one text.
func isError(reply any) bool {
	if _, is := reply.(redis.Error); is {
		return true
	}
	answers, _ := reply.([]any)
	for _, a := range answers {
		words, _ := a.([]any)
		if _, is := a.(redis.Error); !is && len(words) != 1 {
			return false
		}
	}
	return len(answers) > 0
}

// An outcome is what a script has done, as texts.
type outcome struct {
	reply, after, heard, ran string
	raw                      any // reply
}

// play returns also how many milliseconds a TTL may have lost meanwhile. It is 0 where the server's
// time is the same all through a script. The server refuses the commands in writes.
func (r Row) play(t *testing.T, c redis.Conn, source string, writes []string) (o outcome, slack int64) {
	t.Helper()
	input := map[string]any{
		"flush": true, "before": split(r.Before), "keys": words(r.Keys), "args": words(r.Args), "time": early, "old": r.Old,
		"listening": set(r.Listening), "forbid": set(r.Forbid), "gone": set(r.Lapsed), "writes": set(strings.ToUpper(strings.Join(writes, " "))),
	}
	if r.OOM { // what is before must not be the script's first write, after which nothing is refused
		begin := time.Now()
		eval(t, c, "", input)
		input["flush"], input["before"] = false, []string{}
		do(t, c, "CONFIG", "SET", "maxmemory", 1)
		defer do(t, c, "CONFIG", "SET", "maxmemory", 0)
		defer func() { slack += time.Since(begin).Milliseconds() + 2 }()
	}
	reply := eval(t, c, source, input)
	now, err := redis.Int64(reply[4], nil)
	if err != nil {
		t.Fatal(err)
	}
	state, _ := reply[1].([]any)
	heard, _ := reply[2].([]any)
	ran, _ := reply[3].([]any)
	o = outcome{raw: reply[0], reply: relative(text(reply[0]), now), after: relative(inLines(state), now), heard: relative(inLines(heard), now), ran: inLine(ran)}
	if passed := reply[5].(int64); passed > 0 {
		slack = 3 * (passed/1000 + 1) // a script may read a TTL that time has passed of, and write that, also twice
	}
	return o, slack
}

func eval(t *testing.T, c redis.Conn, source string, input map[string]any) []any {
	t.Helper()
	row, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := redis.Values(c.Do("EVAL", strings.Replace(play, "--SCRIPT--", source, 1), 0, row))
	if err != nil {
		t.Fatalf("the row cannot be played: %v", err)
	}
	return reply
}

func do(t *testing.T, c redis.Conn, cmd string, args ...any) {
	t.Helper()
	if _, err := c.Do(cmd, args...); err != nil {
		t.Fatalf("%s %v = %v", cmd, args, err)
	}
}

var word = regexp.MustCompile(`'[^']*'|[^ \n\t']+`)

// words splits a line.
func words(line string) []string {
	all := []string{} // not nil: JSON has an array
	for _, w := range word.FindAllString(line, -1) {
		all = append(all, strings.Trim(w, "'"))
	}
	return all
}

// split splits lines into words.
func split(text string) [][]string {
	all := [][]string{}
	for line := range strings.SplitSeq(text, ";") {
		if w := words(line); len(w) > 0 {
			all = append(all, w)
		}
	}
	return all
}

func set(text string) map[string]bool {
	all := map[string]bool{}
	for _, w := range words(text) {
		all[w] = true
	}
	return all
}

// lines is the text as inLines writes it.
func lines(text string) string {
	var all []any
	for _, line := range split(text) {
		var words []any
		for _, w := range line {
			words = append(words, []byte(w))
		}
		all = append(all, words)
	}
	return inLines(all)
}

func inLines(all []any) string {
	var b strings.Builder
	for _, line := range all {
		b.WriteString("\n  " + inLine(line.([]any)))
	}
	return b.String()
}

func inLine(words []any) string {
	var all []string
	for _, w := range words {
		all = append(all, text(w))
	}
	return strings.Join(all, " ")
}

// text writes a reply as a row says it.
func text(reply any) string {
	switch r := reply.(type) {
	case nil:
		return "nil"
	case []byte:
		if len(r) == 0 || strings.ContainsAny(string(r), " ;") {
			return "'" + string(r) + "'"
		}
		return string(r)
	case []any:
		return "[" + inLine(r) + "]"
	case redis.Error:
		kind, _, _ := strings.Cut(string(r), " ")
		if kind == "WRONGTYPE" || kind == "OOM" || kind == "ERR" {
			return "-" + kind
		}
		return "-" + string(r)
	}
	return fmt.Sprint(reply)
}

var clock = regexp.MustCompile(`\b1\d{12}(\d{3})?\b`)

// relative writes the times of a text as #n and @n.
func relative(text string, now int64) string {
	return clock.ReplaceAllStringFunc(text, func(digits string) string {
		n, err := strconv.ParseInt(digits, 10, 64)
		switch {
		case err != nil:
			return digits
		case len(digits) == 16:
			return fmt.Sprintf("#%d", n-now)
		}
		return fmt.Sprintf("@%d", n-now/1000)
	})
}

var number = regexp.MustCompile(`\d+`)

// compare fails the test unless the texts are the same, but for TTLs (numbers from 1000 on, and all after PX)
// that are less by up to slack.
func compare(t *testing.T, what, got, want string, slack int64) {
	t.Helper()
	same := number.ReplaceAllString(got, "0") == number.ReplaceAllString(want, "0")
	gots, wants, places := number.FindAllString(got, -1), number.FindAllString(want, -1), number.FindAllStringIndex(want, -1)
	for i := 0; same && i < len(gots); i++ {
		if gots[i] != wants[i] {
			g, _ := strconv.ParseInt(gots[i], 10, 64)
			w, _ := strconv.ParseInt(wants[i], 10, 64)
			ttl := w >= 1000 || strings.HasSuffix(want[:places[i][0]], " PX ")
			same = ttl && w-slack <= g && g <= w
		}
	}
	if !same {
		t.Errorf("%s = %s\nwant %s", what, got, want)
	}
}

// BadCounters are the rows of a script that finds in the key fence what is no fence: it says so, and
// changes nothing. The rest of the rows is r's.
func BadCounters(r Row) []Row {
	const told = 50 // characters of it
	long := strings.Repeat("x", told)
	var rows []Row
	for name, value := range map[string]string{
		"a word": "seven", "empty": "", "negative": "-1", "2^53-1": "9007199254740991", "2^53": "9007199254740992", "infinite": "inf",
		"not a number": "nan", "a fraction": "1.5", "digits, then more": "7x", "more, then digits": "x7",
		"as many characters as are shown": long, "one more": long + "y",
	} {
		bad := r
		bad.Name = "the counter is " + name
		bad.Before = "SET fence '" + value + "'; " + r.Before
		bad.Reply = "-FENCE the counter fence holds no fence: " + value[:min(told, len(value))]
		bad.After = Same
		rows = append(rows, bad)
	}
	return rows
}
