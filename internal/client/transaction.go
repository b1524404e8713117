package client

import "strings"

// A State is what the commands of a session leave on its connection: the next caller to get it must not find itself in
// somebody's transaction. The zero value is that of a fresh connection.
type State struct{ watching, queueing bool }

// Note takes in a command that is about to be sent.
func (s *State) Note(cmd string) {
	switch strings.ToUpper(cmd) {
	case "WATCH":
		s.watching = true
	case "MULTI":
		s.queueing = true
	case "UNWATCH":
		s.watching = false
	case "EXEC", "DISCARD":
		s.watching, s.queueing = false, false
	}
}

// Queueing reports whether a transaction has begun.
func (s *State) Queueing() bool { return s.queueing }

// End is the command that makes the connection forget; empty: there is nothing to forget.
func (s *State) End() string {
	switch {
	case s.queueing:
		return "DISCARD" // which ends a WATCH, too
	case s.watching:
		return "UNWATCH"
	}
	return ""
}
