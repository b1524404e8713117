// Tests what CLIENT INFO may say.
package redigonode

import (
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/client"
)

// FuzzIntroduced: whatever CLIENT INFO says, who is to be killed is named by an id and an
// address, or nobody is, in one line; the path of a Unix socket may have blanks in it.
func FuzzIntroduced(f *testing.F) {
	for _, text := range []string{
		"id=7 addr=127.0.0.1:5000 laddr=127.0.0.1:6379 fd=8 name=", "", "id=7", "addr=a", "id= addr= laddr=", "id=1 id=2 addr=a addr=", "id==1 addr==b",
		"id=7 addr=\x00 laddr=\xff", "id=7 addr=/a b:0 laddr=/a b:0 fd=8\nid=9", "ID=7 ADDR=a",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n := &node{}
		id := n.introduced(text)
		if id.Addr == "" && id.Known() {
			t.Errorf("introduced(%q) = %+v: by its id alone", text, id)
		}
		if strings.Contains(id.ID, " ") || strings.Contains(id.ID+id.Addr+n.Name(), "\n") || n.Name() == "" {
			t.Errorf("introduced(%q) = %+v, named %q", text, id, n.Name())
		}
	})
}

// FuzzDiscreet: whatever a dial says, no user's part of a URL is left, nor what the server
// quotes of AUTH.
func FuzzDiscreet(f *testing.F) {
	for _, s := range []string{"dial tcp: refused", `parse "redis://a:%41@host:1": invalid`, "ERR unknown command 'AUTH', with args beginning with: 'user' 's3cret'", "://", "://@", "a://b@c://d@e"} {
		f.Add(s, "s3cret")
	}
	f.Fuzz(func(t *testing.T, before, password string) {
		if len(password) < 4 || strings.ContainsAny(password, " \t\r\n\v\f\"/@") || strings.Contains(before+"redis://***@host", password) {
			return
		}
		for _, said := range []string{"redis://" + password + "@host", "redis://user:" + password + "@host"} {
			if got := client.Discreet(errorText(before+said), "").Error(); strings.Contains(got, password) {
				t.Errorf("discreet(%q) = %q", before+said, got)
			}
		}
	})
}

type errorText string

func (e errorText) Error() string { return string(e) }
