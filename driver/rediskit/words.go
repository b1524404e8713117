package rediskit

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/lockstrategies/locks/strategy"
)

// The words of error replies. Servers say the same thing in different words, and what arises in a script in others again:
// testdata/words has those of Redis 7.0 to 8.6 and of Valkey 8.1 and 9.1, and the tests those of Redis 6.2.
var (
	// place is where in a script an error arose: a hash and a line. Redis 6.2 begins with them, later servers end with them.
	place = regexp.MustCompile(`(?:ERR )?Error running script \(call to f_[0-9a-f]+\): |@user_script: ?\d+: -?| script: (?:[0-9a-f]+, )?on @[\w:]+\.?`)

	forbids = regexp.MustCompile(`NOPERM |ACL failure in script|user executing the script can't`)
	// A server says these of a command that the user may run, but not on this key, or to this channel.
	deniesKey     = regexp.MustCompile(`permissions to access (?:a key|one of the keys)`)
	deniesChannel = regexp.MustCompile(`permissions to access (?:a channel|one of the channels)`)

	otherType = regexp.MustCompile(`WRONGTYPE |Key should be of string type`)

	// half is what a cluster says when it ends a script in its middle: the script has met a key that is not this
	// server's, as when it has just deleted the key while the slot moves.
	half = regexp.MustCompile(`(?i)attempted to (?:access|execute)|undeclared keys were accessed`)
)

// NoScript reports whether a [driver.Node] has to send a script in full: err says that the server does not have it, and so has
// changed nothing.
func NoScript(err error) bool {
	if err == nil {
		return false // soon: every reply comes here
	}
	var said *strategy.ServerError
	return errors.As(err, &said) && said.Kind == strategy.ErrRefused && said.Err != nil && strings.HasPrefix(said.Err.Error(), "NOSCRIPT ")
}

// ErrorReply is the error for a server's error reply: it has refused, and nothing has changed
// ([strategy.ErrRefused]). There is one exception: a cluster ends a script in its middle if that
// meets a key that the server does not have, as when it has just deleted the key while the slot moves
// ([strategy.ErrUnknown]). node is the server's name. The words for a value of another type name no key: the error adds
// how to find it. For authors of a [driver.Node].
func ErrorReply(node string, reply error) error {
	kind := strategy.ErrRefused
	if half.MatchString(reply.Error()) {
		kind = strategy.ErrUnknown
	}
	if WrongType(reply.Error()) {
		reply = fmt.Errorf("%w (TYPE of the lock's key, or of one that belongs to it, says what is there)", reply)
	}
	return &strategy.ServerError{Node: node, Kind: kind, Err: reply}
}

// Reason is the words of an error reply, or of an error with such words in it, without the place in a script: the error
// begins with its code then, if it has one, such as OOM.
func Reason(words string) string {
	return place.ReplaceAllString(words, "")
}

// ReadOnly reports whether a server's error reply says that the server is a replica, to which nobody can
// write. For authors of a [driver.Node].
func ReadOnly(reply error) bool { return strings.HasPrefix(Reason(reply.Error()), "READONLY ") }

// Forbidden reports whether words, of an error reply or an error that has one in it, say that the user lacks a right.
func Forbidden(words string) bool { return forbids.MatchString(words) }

// WrongType reports whether words, of an error reply or an error that has one in it, say that a key has a value of another
// type.
func WrongType(words string) bool { return otherType.MatchString(words) }

// Demoted reports whether the reply to HELLO (without arguments) says that the server is no primary: names
// and values in turn. From Redis 7.0 on, any user may send HELLO. A server or proxy that refuses it has given
// a sign of life, and no more. For authors of a [driver.Node].
func Demoted(hello any) bool {
	words, _ := hello.([]any)
	for i := 0; i+1 < len(words); i += 2 {
		if name, _ := words[i].([]byte); string(name) == "role" {
			role, _ := words[i+1].([]byte)
			return string(role) != "master"
		}
	}
	return false
}
