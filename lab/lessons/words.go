package lessons

import (
	"fmt"
	"strconv"
	"strings"
)

// A call is a script that a client runs. Its arguments and replies are those that the head of its file names.
type call struct {
	script     string
	keys, args []string
}

// asCall reads a request as that. ok is false for one that is none.
func asCall(request []string) (c call, ok bool) {
	if len(request) < 4 || request[0] != "EVALSHA" {
		return call{}, false
	}
	n, err := strconv.Atoi(request[2])
	if err != nil || len(request) < 3+n {
		return call{}, false
	}
	return call{request[1], request[3 : 3+n], request[3+n:]}, true
}

// tokenOfRelease is where release.lua has the token, by the second key, which says whose queue it is: that of package
// fairqueue, semaphore, or rwlock.
var tokenOfRelease = map[string]int{"queue": 2, "waiters": 2, "readers": 1}

// kind is that key's name; empty for a lock that has no queue.
func (c call) kind() string {
	if len(c.keys) > 1 {
		if name := c.keys[1][strings.LastIndex(c.keys[1], ":")+1:]; tokenOfRelease[name] > 0 {
			return name
		}
	}
	return ""
}

// votes reports whether one server of package redlock's is asked for its vote.
func (c call) votes() bool { return c.script == "acquire.lua" && len(c.args) == 3 }

// means is the request in words; empty for a script that has no words here.
func (c call) means() string {
	says := func(format string, args ...any) string {
		return fmt.Sprintf("%s %s: ", c.script, c.keys[0]) + fmt.Sprintf(format, args...)
	}
	wants := func(entry, what string) string {
		if entry != "" {
			return what + ", or a place in the queue"
		}
		return what
	}
	switch a := c.args; {
	case c.script == "extend.lua" && len(a) == 2:
		return says("%s asks for a TTL of %s ms from now", a[0], a[1])
	case c.votes():
		return says("%s asks for a vote, for %s ms", a[0], a[1])
	case c.script == "acquire.lua" && len(c.keys) <= 2 && len(a) == 4:
		return says("%s asks for the lock, for %s ms", a[0], a[1])
	case c.script == "acquire.lua" && c.kind() == "queue":
		return says("%s asks for %s, for %s ms", a[5], wants(a[3], "the lock"), a[0])
	case c.script == "acquire.lua" && c.kind() == "waiters":
		return says("%s asks for %s, for %s ms", a[3], wants(a[5], a[4]+" of "+a[0]+" permits"), a[2])
	case c.script == "acquire.lua" && c.kind() == "readers":
		return says("%s asks to %s, for %s ms", a[2], wants(a[5], a[3]), a[1])
	case c.script == "adopt.lua" && c.kind() == "readers" && a[4] == "1":
		return says("%s is to read from now on, as %s", a[1], a[3])
	case c.script == "writeback.lua":
		return says("note fence %s", a[1])
	case c.script == "limit.lua":
		return says("there are to be %s permits", a[2])
	case c.script == "release.lua":
		return says("%s releases", a[tokenOfRelease[c.kind()]])
	}
	return ""
}

// answers is a reply in words.
func (c call) answers(reply any) string {
	switch v := reply.(type) {
	case nil:
		return "the hold is lost"
	case []byte:
		return "refused: the lock is another's, " + string(v)
	case int64:
		return c.done(v)
	case []any:
		if c.script == "extend.lua" && len(v) > 0 { // an answer for each lock that it was asked for
			return c.answers(v[0])
		}
		return c.refused(v)
	}
	return ""
}

// done is what a whole number says.
func (c call) done(n int64) string {
	switch c.script {
	case "extend.lua":
		return "renewed"
	case "release.lua":
		return "released"
	case "limit.lua":
		return "set"
	case "writeback.lua":
		return "noted"
	}
	switch {
	case c.votes() && n == 0:
		return "it has that vote already"
	case c.votes():
		return "voted"
	case n == 0:
		return "granted, without a fence"
	}
	return fmt.Sprintf("granted, with fence %d", n)
}

// refused is what an array says: others hold the lock, or a server does not vote yet; or else a fence, and how many more come
// with it, or the last fence that a server has noted.
func (c call) refused(v []any) string {
	holder, ok := v[0].([]byte)
	switch {
	case !ok && c.votes():
		return fmt.Sprintf("voted; the last fence noted here is %v", v[1])
	case !ok:
		return fmt.Sprintf("granted, with fence %v", v[0])
	}
	if string(holder) == "guard" {
		return fmt.Sprintf("refused: it does not vote for %v ms more", v[2])
	}
	words, rest := fmt.Sprintf("refused: %s holds it for %v ms", holder, v[1]), v[2:]
	if c.kind() == "waiters" {
		words, rest = fmt.Sprintf("refused: %v of %v permits are taken; that of %s ends first, in %v ms", v[2], v[3], holder, v[1]), v[4:]
	}
	if len(rest) == 4 && rest[2] != int64(0) { // the server's time, and the place
		words += fmt.Sprintf("; place %v in the queue", rest[2])
	}
	return words
}

// hearsay is what a message says to a waiter in a queue; empty for others.
func hearsay(message string) string {
	switch w := strings.Fields(message); {
	case len(w) == 7 && w[0] == "grant":
		fence := "with fence " + w[1]
		if w[1] == "0" {
			fence = "without a fence"
		}
		return fmt.Sprintf("%s holds it now, for %s ms, %s", w[6], w[3], fence)
	case len(w) == 2 && w[0] == "next":
		return fmt.Sprintf("you are the next; ask again in %s ms", w[1])
	}
	return ""
}
