package driver

import (
	"crypto/sha1"
	"encoding/hex"
)

// A Script is Lua that runs on the server, atomically.
type Script struct {
	name, source, hash string
	arg                any // hash
	joint              bool
	shared             int
}

// NewScript makes a script from its source. The name is for errors and docs.
func NewScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source)) // Redis names scripts by SHA-1; it protects nothing here
	hash := hex.EncodeToString(sum[:])
	return &Script{name: name, source: source, hash: hash, arg: hash}
}

// NewJointScript makes a script that may serve several callers in one request: a [Node] may send one for all that call it at the
// same time. Each caller gets the answer that a script of its own would give.
//
// For n callers KEYS has the first key of each, then the second of each, and so on. ARGV has the first arguments once, as many as
// shared says: callers that differ in them are not served together. The others follow in the order of the keys. For several
// callers the script returns an array of the answers. An error in it is for one caller, for whom nothing has changed.
func NewJointScript(name string, shared int, source string) *Script {
	s := NewScript(name, source)
	s.joint, s.shared = true, shared
	return s
}

// Joint reports whether the script may serve several callers at once, and how many arguments they share.
func (s *Script) Joint() (shared int, ok bool) { return s.shared, s.joint }

// Name returns the script's name.
func (s *Script) Name() string { return s.name }

// Source returns the Lua source.
func (s *Script) Source() string { return s.source }

// Hash returns the SHA-1 of the source in hexadecimal, as EVALSHA wants it.
func (s *Script) Hash() string { return s.hash }

// HashArg returns Hash as an argument of a command, without an allocation.
func (s *Script) HashArg() any { return s.arg }
