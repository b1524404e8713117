package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"sync"
)

// A name is what a lock's key is called in the database. All but the key itself are hashes: two locks whose slots are the
// same by chance only wait for each other's steps.
type name struct {
	key   []byte
	slot  int64  // the advisory lock of the key's steps
	heard int64  // the advisory lock of those who wait without a place
	freed string // their channel
	hash  [sha256.Size]byte
}

// names remembers the names of the locks in use.
type names struct {
	schema string
	mu     sync.Mutex
	recent map[string]*name
}

// mostNames bounds what is remembered: then it begins again.
const mostNames = 4096

func newNames(schema string) *names { return &names{schema: schema, recent: map[string]*name{}} }

func (ns *names) of(key string) *name {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if n := ns.recent[key]; n != nil {
		return n
	}
	if len(ns.recent) >= mostNames {
		clear(ns.recent)
	}
	n := &name{key: []byte(key), hash: sha256.Sum256([]byte(ns.schema + "\x00" + key))}
	n.slot = int64(binary.BigEndian.Uint64(n.hash[0:]))
	n.freed = freedPrefix + hex.EncodeToString(n.hash[16:])
	n.heard = heardLock(n.freed)
	ns.recent[key] = n
	return n
}

// Channels begin so. The rest of a channel is hexadecimal, so it needs no quotes in SQL.
const (
	freedPrefix = "locks_freed_"
	linePrefix  = "locks_line_"
	testPrefix  = "locks_test_"
)

// line is the channel on which a line hears of direct grants. Nobody can guess it who does not know the line.
func (n *name) line(id string) string {
	hash := sha256.Sum256(append(n.hash[:], id...))
	return linePrefix + hex.EncodeToString(hash[:16])
}

// heardLock is the advisory lock of those who listen on a channel for releases.
func heardLock(freed string) int64 {
	lock, _ := strconv.ParseUint(freed[len(freedPrefix):][:16], 16, 64) // it is hexadecimal
	return int64(lock)
}
