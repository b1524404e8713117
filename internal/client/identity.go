package client

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lockstrategies/locks/internal/contract"
)

// An Identity names a connection on its server: the id is never used twice in the
// life of a server, and the address tells a restarted server's ids from it.
type Identity struct {
	ID, Addr string
	Server   string // the server's own address; empty: not known
	Age      int    // of the connection, in seconds
}

// Known reports whether the server has said who the connection is.
func (i Identity) Known() bool { return i.ID != "" }

// Introduced reads the answer to CLIENT INFO: id=… addr=… laddr=… fd=…, and more.
func Introduced(info string) (id Identity) {
	id.Server = contract.Printable(word(info, "laddr", "fd"))
	id.Age, _ = strconv.Atoi(word(info, "age", ""))
	if id.Addr = word(info, "addr", "laddr"); id.Addr != "" { // by its id alone it is not safe to kill
		id.ID = word(info, "id", "")
	}
	return id
}

// word is the value of a key in CLIENT INFO: what stands before the key that is next,
// as the path of a Unix socket may have blanks in it, or else a word.
func word(line, key, next string) string {
	_, value, _ := strings.Cut(" "+line, " "+key+"=")
	if next != "" {
		if whole, _, ok := strings.Cut(value, " "+next+"="); ok {
			return strings.TrimSpace(whole)
		}
	}
	value, _, _ = strings.Cut(value, " ")
	return strings.TrimSpace(value)
}

// Abandoned are connections that were given up before they had answered all: the server may read those later. So they are
// killed before anything is sent on another connection.
type Abandoned []Identity

// Killed forgets those that are certainly dead.
func (a *Abandoned) Killed(dead []Identity) {
	*a = slices.DeleteFunc(*a, func(id Identity) bool { return slices.Contains(dead, id) })
}

// MayKill asks in the same packet as CLIENT INFO whether the server lets a connection kill another: its filters
// match nobody. A server that refuses either keeps no order.
var MayKill = []string{"CLIENT", "KILL", "ID", "1", "ADDR", "0.0.0.0:0"}

// Kill is the command that kills a connection. To have killed none is as good: it was dead.
func (i Identity) Kill() []string {
	return []string{"CLIENT", "KILL", "ID", i.ID, "ADDR", i.Addr}
}
