//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Tests that a server cannot speak to the terminal, or show a password, and what the command of exec learns of the server.
package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// obeyed are bytes that a terminal obeys.
const obeyed = "\x1b]0;owned\a\u009b31m\u202e\x7f"

// showable fails the test if a text has such bytes.
func showable(t *testing.T, what, text string) {
	t.Helper()
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Errorf("%s is %q, which a terminal obeys", what, text)
	}
}

// TestHostileServer: whatever a server says of itself, and of what it refuses, the commands show it.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	s := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
		switch {
		case slices.Equal(cmd, []string{"CLIENT", "INFO"}):
			info := "id=7 addr=127.0.0.1:1 laddr=" + obeyed + ":6379 fd=8"
			c.Say("$%d\r\n%s\r\n", len(info), info)
		case cmd[0] == "INFO":
			info := "role:slave" + obeyed + "\r\nmaxmemory:1\r\nmaxmemory_policy:" + obeyed + "\r\n"
			c.Say("$%d\r\n%s\r\n", len(info), info)
		default:
			c.Say("-ERR no " + obeyed + " AUTH 'swordfishes'\r\n")
		}
	})
	for _, args := range [][]string{
		{"check"}, {"inspect", "x"}, {"inspect", "x", "--json"}, {"list"}, {"release", "x", "--force"},
		{"exec", "x", "--", "true"}, {"exec", "x", "--try", "--strict", "--", "true"}, {"list", "--strategy", "redlock", "--redis", s.Addr},
		{"bootstrap", "--redis", s.Addr},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			c := toolFor(t, nil, args...)
			c.Env = append(c.Env, "REDIS_URL="+s.Addr)
			out, code := c.start().end()
			if code == 0 {
				t.Errorf("exit 0, want that the server refuses")
			}
			showable(t, "standard output", out)
			showable(t, "standard error", c.errs.String())
		})
	}
}

// TestJSONShows: JSON has as \u… what a terminal obeys, and the same text comes out of it.
func TestJSONShows(t *testing.T) {
	t.Parallel()
	want := map[string]string{"name": obeyed + "\U000e0001 é <b>⌛"}
	var out strings.Builder
	redistest.Must(t, printJSON(&out, want, ""))
	showable(t, "JSON", out.String())
	got := map[string]string{}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got["name"] != want["name"] {
		t.Errorf("%s is read as %q, %v", out.String(), got, err)
	}
	if !strings.Contains(out.String(), "é <b>⌛") {
		t.Errorf("%s, want what is printable as it is", out.String())
	}
}

// TestHints: what each server says of a missing right, and of a key of another type, leads to the same advice.
func TestHints(t *testing.T) {
	t.Parallel()
	var c connection
	c.servers, c.strategy = []address{{at: "10.0.0.1:6379", password: "swordfishes"}}, "ifeq"
	const right, kind = "ACL LOG on the server names the user", "is not of a ifeq lock: give the --strategy"
	for words, want := range map[string]string{
		"NOPERM this user has no permissions to run the 'get' command":                                                   right,
		"ERR The user executing the script can't run this command or subcommand script: " + sha + ", on @user_script:1.": right,
		"ERR ACL failure in script: User u has no permissions to run the 'get' command script: on @user_script:1.":       right,
		"WRONGTYPE Operation against a key holding the wrong kind of value script: on @user_script:9.":                   kind,
		"ERR Key should be of string type if conditions are specified":                                                   kind,
		"ERR Error running script (call to f_" + sha + "): @user_script:1: WRONGTYPE Operation against a key":            kind,
		"ERR got swordfishes": "refused by the server: ERR got ***",
	} {
		err := c.explained("n", &strategy.ServerError{Node: driver.Unnamed, Kind: strategy.ErrRefused, Err: redis.Error(words)})
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "@user_script") || strings.Contains(err.Error(), sha) || !strings.HasPrefix(err.Error(), "10.0.0.1:6379: ") {
			t.Errorf("of %q it says %q, want %q in it, and no place in a script", words, err, want)
		}
	}
	if err := errors.New("plain"); c.explained("n", err) != err {
		t.Error("an error that needs no explanation is another")
	}
}

const sha = "799ee5a4b0c4a8e7d3c2b1a09f8e7d6c5b4a3f2e"
