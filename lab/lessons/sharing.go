package lessons

import (
	"fmt"
	"strings"
)

// A sharing is what a lock promises about those who hold it at the same time.
type sharing struct {
	promise  string
	believes func(c *client) string                     // of a holder: what it believes it does
	broken   func(c *client, others []*client) []string // what is wrong when c holds it next to others
	kept     func(*Stage) string                        // what an act has shown in which nothing was
}

// alone is what most locks promise.
var alone = sharing{
	promise:  oneHolder,
	believes: func(*client) string { return "holds the lock" },
	broken: func(c *client, others []*client) (texts []string) {
		for _, other := range others {
			texts = append(texts, fmt.Sprintf("%s and %s both believe they hold the lock", other.name, c.name))
		}
		return texts
	},
	kept: func(s *Stage) string { return fmt.Sprintf("%d holds, of which no two overlap", s.held) },
}

// together judges what everybody believed, if more than one held the lock in the course of the act.
func (s *Stage) together() {
	for _, e := range s.trace.Events {
		if e.Kind == Violation && e.Promise == s.shares.promise {
			s.judge(e.Promise, false, "%s", e.Text)
			return
		}
	}
	if s.held > 1 {
		s.judge(s.shares.promise, true, "%s", s.shares.kept(s))
	}
}

// named are the names of clients, as a sentence has them.
func named(clients []*client) string {
	var names []string
	for _, c := range clients {
		names = append(names, c.name)
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return strings.Join(names, "")
}
