package diagram

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/lockstrategies/locks/strategy"
)

// An Actor is a column of the diagram.
type Actor struct {
	Name   string `json:"name"`
	Server bool   `json:"server,omitempty"`
	URL    string `json:"url,omitempty"` // of a server, without a password
}

// A Kind says what an Event is.
type Kind string

const (
	Send      Kind = "send"      // a command leaves From for To
	Reply     Kind = "reply"     // its answer, from From to To
	Message   Kind = "message"   // what a subscriber hears
	Look      Kind = "look"      // a command of the narrator's, outside the story, with its answer
	State     Kind = "state"     // From's state changes
	Note      Kind = "note"      // what happens otherwise
	Violation Kind = "violation" // a promise is broken here
)

// A Condition is a state of an Actor.
type Condition string

const (
	Holds  Condition = "holds"  // it believes it holds the lock
	Ended  Condition = "ended"  // it does not believe that any more
	Paused Condition = "paused" // it does nothing
	Awake  Condition = "awake"  // it does nothing more
	Dead   Condition = "dead"
	Alive  Condition = "alive" // again
)

// An Event is a moment of an act.
type Event struct {
	At        time.Duration `json:"at_ns"` // since the act began
	Kind      Kind          `json:"kind"`
	From      string        `json:"from,omitempty"`
	To        string        `json:"to,omitempty"`
	Args      []string      `json:"args,omitempty"`   // send, look: the command, whole
	Answer    string        `json:"answer,omitempty"` // reply, look: as redis-cli shows it; message: its text
	Means     string        `json:"means,omitempty"`  // send, reply, message: the same in words, where its parts have no names
	Of        int           `json:"of"`               // reply: which event it answers
	Condition Condition     `json:"condition,omitempty"`
	Promise   string        `json:"promise,omitempty"` // violation: which is broken
	Text      string        `json:"text,omitempty"`    // in words
}

// Command is what was sent, for people: in words, or with long arguments cut.
func (e Event) Command() string {
	if e.Means != "" {
		return Brief(e.Means)
	}
	words := slices.Clone(e.Args)
	for i, w := range words {
		if words[i] = quote(w); words[i] != Shorten(words[i]) {
			words[i] = quote(Shorten(w)) // and whole quotes
		}
	}
	return strings.Join(words, " ")
}

// Shorten cuts what nobody can read to what tells it apart: the end of a token has its
// holder's name, and some say before it what that does.
func Shorten(w string) string {
	const most = 26
	for _, does := range []string{"read:", "write:", "permit:"} {
		if token, ok := strings.CutPrefix(w, does); ok {
			return does + Shorten(token)
		}
	}
	if r := []rune(w); len(r) > most {
		return "…" + string(r[len(r)-8:])
	}
	return w
}

// Brief is an answer, or a message, in which words that are too long are shortened.
func Brief(answer string) string {
	return wordRule.ReplaceAllStringFunc(answer, Shorten)
}

var wordRule = regexp.MustCompile(`[^\s"\[\],]+`)

func quote(w string) string {
	odd := func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r) || r == '"' || r == unicode.ReplacementChar
	}
	if w == "" || strings.ContainsFunc(w, odd) {
		return strconv.Quote(w)
	}
	return w
}

// AnswerText is what a reply looks like in the diagram, or a request that has failed.
func AnswerText(reply any, err error) string {
	var said *strategy.ServerError
	switch {
	case err == nil:
		return shown(reply)
	case errors.Is(err, strategy.ErrUnknown):
		return "(no answer)"
	case errors.Is(err, strategy.ErrUnsent):
		return "(not sent)"
	case errors.As(err, &said) && said.Err != nil:
		return "(error) " + said.Err.Error()
	}
	return "(error) " + err.Error()
}

// shown shows a reply as redis-cli does, in one line.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "(nil)"
	case int64:
		return "(integer) " + strconv.FormatInt(v, 10)
	case []byte:
		return shown(string(v))
	case string:
		if v == "OK" || v == "QUEUED" || v == "PONG" { // the status replies of this package's commands
			return v
		}
		return strconv.Quote(v)
	case []any:
		var parts []string
		for _, p := range v {
			parts = append(parts, shown(p))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(v)
}
