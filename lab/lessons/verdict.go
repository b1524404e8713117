package lessons

import (
	"fmt"
	"strings"

	"github.com/lockstrategies/locks/lab/diagram"
)

// The promises that lessons are about. A verdict is computed from what
// happened in an act, and from what the servers have at its end.
const (
	oneHolder  = "one holder at a time"
	comesFree  = "a dead holder's lock comes free"
	ownRelease = "only its holder ends a hold"
	noLateWork = "the store takes no write of a holder whose lock is lost"
)

func (s *Stage) judge(promise string, held bool, because string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace.Verdicts = append(s.trace.Verdicts, Ruling{promise, held, fmt.Sprintf(because, args...)})
}

// broken marks the moment at which a promise is broken that is not about two holders.
func (s *Stage) broken(promise, what string, args ...any) {
	text := fmt.Sprintf(what, args...)
	s.add(Event{Kind: Violation, Promise: promise, Text: text})
	s.judge(promise, false, "%s", text)
}

// decide writes a verdict down, and if the promise is broken marks that moment.
func (s *Stage) decide(promise string, held bool, kept, broken string) {
	if held {
		s.judge(promise, true, "%s", kept)
	} else {
		s.broken(promise, "%s", broken)
	}
}

// stillHas judges whether the server has what the holder of the lock believes.
func (c *client) stillHas(srv *server, token string) {
	v := srv.look("GET", c.s.key())
	got, _ := v.([]byte)
	switch {
	case !c.holding:
		c.s.Cannot("%s holds no lock that could be looked at", c.name)
	case v == nil:
		c.s.broken(ownRelease, "%s believes it holds the lock, and Redis has none: somebody else has ended the hold", c.name)
	case string(got) != token:
		c.s.broken(ownRelease, "%s believes it holds the lock, and Redis has another's: %s", c.name, diagram.Shorten(string(got)))
	default:
		c.s.judge(ownRelease, true, "%s believes it holds the lock, and GET %s says so, too", c.name, c.s.key())
	}
}

// freed judges whether a client gets the lock of a dead holder when a TTL is over. If not, keeps says what keeps it out.
func (s *Stage) freed(c *client, try func() bool, keeps func() string) {
	if try() {
		s.judge(comesFree, true, "%s has got it, a TTL after its holder's death", c.name)
		return
	}
	s.broken(comesFree, "%s", keeps())
}

// endless is what keeps the lock of a dead holder where nothing ends it.
func (s *Stage) endless() string {
	if ttl := s.redis().look("PTTL", s.key()).(int64); ttl != -1 {
		s.Cannot("nobody gets the lock, though it has a TTL, of %d ms", ttl)
	}
	return "PTTL is -1: the key has no end, and nobody is left to delete it"
}

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
	return sentence(names)
}

func sentence(names []string) string {
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return strings.Join(names, "")
}
