package driver

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/lockstrategies/locks/strategy"
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

// NewJointScript makes a script that may serve several callers in one request. A [Node] that finds
// that several call it at the same time then pays for one request and one script. It need not do so:
// each caller gets its answer in either case, as from a script of its own.
//
// For n callers KEYS has the first key of each, then the second of each, and so on. ARGV has the first
// arguments, as many as shared says, once: callers that differ in them are not served together. The
// other arguments follow, in the order of the keys. For several callers the script returns an array of
// what it returns for each. An error in it is for one caller: nothing has changed for that caller.
func NewJointScript(name string, shared int, source string) *Script {
	s := NewScript(name, source)
	s.joint, s.shared = true, shared
	return s
}

// Joint reports whether the script may serve several callers at once, and how many arguments they
// share. For authors of a [Node].
func (s *Script) Joint() (shared int, ok bool) { return s.shared, s.joint }

// Missing reports whether err says that the server does not have the script. Nothing has changed:
// send the script in full. For authors of a [Node].
func (s *Script) Missing(err error) bool {
	if err == nil {
		return false // soon: every reply comes here
	}
	var said *strategy.ServerError
	return errors.As(err, &said) && said.Kind == strategy.ErrRefused && said.Err != nil && strings.HasPrefix(said.Err.Error(), "NOSCRIPT ")
}

// Name returns the script's name.
func (s *Script) Name() string { return s.name }

// Source returns the Lua source.
func (s *Script) Source() string { return s.source }

// Hash returns the SHA-1 of the source in hexadecimal, as EVALSHA wants it.
func (s *Script) Hash() string { return s.hash }

// HashArg returns Hash as an argument of a command, without an allocation.
func (s *Script) HashArg() any { return s.arg }
