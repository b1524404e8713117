package lessons

import "github.com/lockstrategies/locks/lab/diagram"

// The trace of an act has these parts.
type (
	Actor     = diagram.Actor
	Event     = diagram.Event
	Kind      = diagram.Kind
	Condition = diagram.Condition
)

const (
	Send      = diagram.Send
	Reply     = diagram.Reply
	Message   = diagram.Message
	Look      = diagram.Look
	State     = diagram.State
	Note      = diagram.Note
	Violation = diagram.Violation

	Holds  = diagram.Holds
	Ended  = diagram.Ended
	Paused = diagram.Paused
	Awake  = diagram.Awake
	Dead   = diagram.Dead
	Alive  = diagram.Alive
)

// A Ruling is whether a promise was kept.
type Ruling struct {
	Promise string `json:"promise"`
	Held    bool   `json:"held"`
	Because string `json:"because"` // what it was computed from
}

func (v Ruling) String() string {
	if v.Held {
		return "KEPT"
	}
	return "VIOLATED"
}

// A Table is what an act measured.
type Table struct {
	Title string     `json:"title"`
	Head  []string   `json:"head"`
	Rows  [][]string `json:"rows"`
}

// A Trace is what happened in an act.
type Trace struct {
	Title    string    `json:"title"`
	Actors   []Actor   `json:"actors"`
	Events   []Event   `json:"events"`
	Tables   []Table   `json:"tables,omitempty"`
	Verdicts []Ruling  `json:"verdicts"`
	Listings []Listing `json:"listings,omitempty"`
}

// A Listing is a script that ran.
type Listing struct {
	Name   string `json:"name"`
	Source string `json:"source"`
}

// A Result is what came of a lesson.
type Result struct {
	Number int     `json:"number"`
	Name   string  `json:"name"`
	Title  string  `json:"title"`
	Idea   string  `json:"idea"`
	Fix    string  `json:"fix"`
	Redis  string  `json:"redis"` // what ran: its version
	Acts   []Trace `json:"acts"`
}

// Diagram draws the trace for a terminal of that width: see [diagram.Draw].
func (t Trace) Diagram(width int, paint diagram.Paint) string {
	return diagram.Draw(t.Actors, t.Events, width, paint)
}
