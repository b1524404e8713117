// Tests how the protocol reads what the server says of the queue and on its channels, or passes over it.
package queue

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
)

// published is a node on whose channels one message comes.
type published struct {
	driver.Node
	msg []byte
}

func (n published) Subscribe(_ context.Context, _ string, fn func([]byte, error)) (func(), error) {
	fn(n.msg, nil)
	return func() {}, nil
}

// FuzzNotification: whatever is published to a queue's channel, what is passed on is a grant that
// can be counted with, or that somebody else is next.
func FuzzNotification(f *testing.F) {
	for _, msg := range []string{
		"grant 7 1 1000 1795341427 5 token", "next 1000", "", " ", "grant", "grant 1 1 1 1 1 ", "grant -1 1 1 1 1 t", "next 99999999999999999999",
		"grant 18446744073709551615 257 86400001 9223372036 1000000 t", "next 0", "next 86400001", "grant 1 1 1000 9223372036 999999 \x00\xff",
	} {
		f.Add([]byte(msg))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		c := driver.Claim{Name: "n", Key: "n", Line: "line", Due: time.Now().Add(time.Minute)}
		stop, err := Watch(t.Context(), published{msg: msg}, c, "queue:line", true, func(n driver.Notification) {
			g := n.Grant
			switch {
			case n.Broken() || n.Holder != "":
				t.Errorf("%q is passed on as %+v", msg, n)
			case n.Token == "" && (n.Next <= 0 || n.Next > contract.MaxTTL):
				t.Errorf("%q: next in %v", msg, n.Next)
			case n.Token != "" && g != driver.Grant{} && (g.TTL <= 0 || g.TTL > contract.MaxTTL || g.Fences < 0 || g.Fences > driver.MaxFences || g.ServerTime < 0):
				t.Errorf("%q: granted %+v", msg, g)
			case n.Token != "" && g != driver.Grant{} && (g.Fence == 0 || g.Fence > uint64(g.ServerTime.Microseconds())+1000):
				t.Errorf("%q: granted %+v", msg, g)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		stop()
	})
}

// TestNotifications: what each message says. Of a grant that no script makes the token is left: the waiter is to ask.
func TestNotifications(t *testing.T) {
	granted := func(fence uint64, fences int, ttl, now time.Duration, token string) driver.Notification {
		return driver.Notification{Token: token, Grant: driver.Grant{Fence: fence, Fences: fences, TTL: ttl, ServerTime: now}}
	}
	none := driver.Notification{}
	for msg, want := range map[string]driver.Notification{
		"next 1000":                             {Next: time.Second},
		"next 86400000":                         {Next: contract.MaxTTL},
		"next 86400001":                         none,
		"next 0":                                none,
		"next x":                                none,
		"next":                                  none,
		"soon 1000":                             none,
		"":                                      none,
		"grant 7 3 1000 1795341427 5 mine":      granted(7, 3, time.Second, 1795341427*time.Second+5*time.Microsecond, "mine"),
		"grant 1 0 1000 1795341427 5 yes, mine": granted(1, 0, time.Second, 1795341427*time.Second+5*time.Microsecond, "yes, mine"),
		"grant 1795341427001005 256 86400000 1795341427 5 mine": granted(1795341427001005, driver.MaxFences, contract.MaxTTL,
			1795341427*time.Second+5*time.Microsecond, "mine"),
		"grant 1795341427001006 256 86400000 1795341427 5 mine": {Token: "mine"}, // of a clock that was set back, or forged
		"grant 9223372036854775807 1 1000 9223372035 5 mine":    {Token: "mine"},
		"grant 0 0 1000 1795341427 5 mine":                      {Token: "mine"}, // each hold has a fence
		"grant 9223372036854775808 1 1000 1795341427 5 mine":    none,
		"grant 7 257 1000 1795341427 5 mine":                    none,
		"grant 7 1 86400001 1795341427 5 mine":                  none,
		"grant 7 1 1000 9223372036 5 mine":                      none,
		"grant 7 1 1000 1795341427 1000000 mine":                none,
		"grant 7 1 0 1795341427 5 mine":                         none,
		"grant -7 1 1000 1795341427 5 mine":                     none,
		"grant 7 1 1000 1795341427 5 ":                          none,
	} {
		var heard []driver.Notification
		c := driver.Claim{Name: "n", Key: "n", Line: "line", Due: time.Now().Add(time.Minute)}
		if _, err := Watch(t.Context(), published{msg: []byte(msg)}, c, "queue:line", true, func(n driver.Notification) { heard = append(heard, n) }); err != nil {
			t.Fatal(err)
		}
		if want == none && len(heard) > 0 || want != none && (len(heard) != 1 || heard[0] != want) {
			t.Errorf("%q is passed on as %+v, want %+v alone; if that is empty, nothing", msg, heard, want)
		}
	}
}

// TestNotificationsWithoutFences: a lock without fences gets none by a message.
func TestNotificationsWithoutFences(t *testing.T) {
	for msg, want := range map[string]driver.Grant{
		"grant 0 0 1000 1795341427 5 mine": {TTL: time.Second, ServerTime: 1795341427*time.Second + 5*time.Microsecond},
		"grant 7 1 1000 1795341427 5 mine": {},
	} {
		c := driver.Claim{Name: "n", Key: "n", Line: "line", Due: time.Now().Add(time.Minute)}
		_, err := Watch(t.Context(), published{msg: []byte(msg)}, c, "queue:line", false, func(n driver.Notification) {
			if n.Token != "mine" || n.Grant != want {
				t.Errorf("%q is passed on as %+v, want the grant %+v", msg, n, want)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestHeldReplies: what a refused contender learns of its place.
func TestHeldReplies(t *testing.T) {
	now := 3*time.Second + 5*time.Microsecond
	for _, c := range []struct {
		place []any // seconds, microseconds, its place, and whether it had that before
		want  driver.Grant
	}{
		{nil, driver.Grant{}},
		{[]any{int64(3), int64(5), int64(2), int64(0)}, driver.Grant{Place: 2, ServerTime: now}},
		{[]any{int64(3), int64(5), int64(7), int64(1)}, driver.Grant{Place: 7, Kept: true, ServerTime: now}},
		{[]any{int64(3), int64(5), int64(0), int64(0)}, driver.Grant{ServerTime: now}},
		{[]any{int64(3), int64(5), int64(math.MaxInt64), int64(0)}, driver.Grant{Place: math.MaxInt32, ServerTime: now}},
		{[]any{int64(math.MaxInt64), int64(5), int64(0), int64(0)}, driver.Grant{ServerTime: time.Duration(maxSeconds)*time.Second + 5*time.Microsecond}},
	} {
		g, held, ok := HeldReply(driver.Claim{Name: "n"}, append([]any{[]byte("holder"), int64(1000)}, c.place...))
		if !ok || g != c.want || held.Holder != "holder" || held.TTL != time.Second {
			t.Errorf("the reply of a lock that is held, with place %v = %+v, %v, %t, want %+v", c.place, g, held, ok, c.want)
		}
	}
}
