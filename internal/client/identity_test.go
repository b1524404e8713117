// Tests how a connection is told from all others, and that no password is repeated.
package client

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// TestIntroduced: the path of a Unix socket is reported as it is, also with blanks in it.
func TestIntroduced(t *testing.T) {
	for text, want := range map[string]Identity{
		"id=3 addr=127.0.0.1:1 laddr=127.0.0.1:6379 fd=8 name= age=7\n": {"3", "127.0.0.1:1", "127.0.0.1:6379", 7},
		"id=3 addr=/a/b:0 laddr=/a/b:0 fd=8 name= age=x\n":              {"3", "/a/b:0", "/a/b:0", 0},
		"id=3 addr=/a b/c =d:0 laddr=/a b/c =d:0 fd=8 name=addr=1\n":    {"3", "/a b/c =d:0", "/a b/c =d:0", 0},
		"id=3 addr=127.0.0.1:1":                                         {"3", "127.0.0.1:1", "", 0},
		"id=3 addr=127.0.0.1:1\n":                                       {"3", "127.0.0.1:1", "", 0},
		"id=3 laddr=s:1 fd=8\n":                                         {"", "", "s:1", 0}, // by its id alone it is not safe to kill
		"":                                                              {},
	} {
		got := Introduced(text)
		if got != want || got.Known() != (want.ID != "") {
			t.Errorf("Introduced(%q) = %q, known %v, want %q", text, got, got.Known(), want)
		}
	}
}

func TestAbandoned(t *testing.T) {
	a, b, c := Identity{ID: "1", Addr: "x:1"}, Identity{ID: "1", Addr: "x:2"}, Identity{ID: "2", Addr: "x:1"}
	list := Abandoned{a, b, c}
	list.Killed([]Identity{a, c, {}})
	if !slices.Equal(list, Abandoned{b}) {
		t.Errorf("%v are left, want %v", list, b)
	}
	if got := strings.Join(b.Kill(), " "); got != "CLIENT KILL ID 1 ADDR x:2" {
		t.Errorf("Kill() = %s", got)
	}
}

func TestPassing(t *testing.T) {
	for said, want := range map[string]bool{
		"BUSY x": true, "LOADING x": true, "MASTERDOWN x": true, "ERR max number of clients reached": true, "max number of clients reached": true,
		"NOAUTH x": true, "DENIED x": true, "NOPERM x": false, "ERR unknown command": false, "BUSYGROUP x": false,
	} {
		if got := Passing(errors.New(said)); got != want {
			t.Errorf("Passing(%s) = %v, want %v", said, got, want)
		}
	}
}

func TestDiscreet(t *testing.T) {
	if got := Discreet(io.EOF, "s3cret"); got != io.EOF {
		t.Errorf("Discreet(EOF) = %v, want it unchanged", got)
	}
	for said, want := range map[string]string{
		"ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 's3cret'\n's3cret'": "ERR unknown command 'HELLO'",
		"parse redis://u:s3cret@h:1: no": "parse redis://***@h:1: no",
		"the password s3cret is wrong":   "the password (password) is wrong",
	} {
		got := Discreet(errors.New(said), "s3cret")
		if got.Error() != want || errors.Unwrap(got) != nil {
			t.Errorf("Discreet(%q) = %q, want %q", said, got, want)
		}
	}
	if got := Discreet(errors.New("abc"), ""); got.Error() != "abc" {
		t.Errorf("Discreet without a password = %v", got)
	}
}
