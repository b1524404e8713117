package play

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstrategies/locks/lab/diagram"
)

// A State is what the page shows. Times are in milliseconds.
type State struct {
	Algorithm  string          `json:"algorithm"` // its ID
	Moves      []Move          `json:"moves"`
	Now        int64           `json:"now"`
	Clients    []Client        `json:"clients"`
	Servers    []Server        `json:"servers"`
	Database   Database        `json:"database"`
	Violations []diagram.Event `json:"violations"`
	Stopped    []string        `json:"stopped"` // late writes, in words
}

// A Client is what can be seen of one.
type Client struct {
	Name   string    `json:"name"`
	Paused bool      `json:"paused"`
	Dead   bool      `json:"dead"`
	ByHand bool      `json:"byHand"` // its messages wait for a move
	Hangs  bool      `json:"hangs"`
	Ahead  int64     `json:"ahead"` // its clock
	Doing  []string  `json:"doing"`
	Last   string    `json:"last"`
	Holds  []Hold    `json:"holds"` // that it believes it has
	Wire   []Message `json:"wire"`
}

// A Hold is one that a client believes it has.
type Hold struct {
	Name    string `json:"name"`
	Fence   string `json:"fence"` // empty: none
	Left    int64  `json:"left"`  // until its deadline
	Renewed bool   `json:"renewed"`
}

// A Message is on the wire.
type Message struct {
	N     int    `json:"n"`
	Words string `json:"words"`
	Late  bool   `json:"late"`
	First bool   `json:"first"` // it may be delivered
	Times int    `json:"times"` // how often it is there: the engine repeats what was not answered
}

// A Server is what can be seen of one.
type Server struct {
	Name  string `json:"name"`
	Up    bool   `json:"up"`
	Ahead int64  `json:"ahead"`
	Keys  []Key  `json:"keys"`
}

// A Key is one of a server's.
type Key struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	TTL   int64  `json:"ttl"` // that is left; -1: it does not expire
}

// A Database is what the lock protects.
type Database struct {
	Value string `json:"value"`
	Fence string `json:"fence"`
}

// State is how the play stands.
func (s *Stage) State() State {
	st := State{Algorithm: s.algorithm.ID, Moves: append([]Move{}, s.moves...), Now: time.Since(s.began).Milliseconds(), Stopped: s.stopped}
	for _, e := range s.events {
		if e.Kind == diagram.Violation {
			st.Violations = append(st.Violations, e)
		}
	}
	st.Database.Value = s.db.value
	if s.db.fence > 0 {
		st.Database.Fence = s.names.brief(strconv.FormatUint(s.db.fence, 10))
	}
	for _, srv := range s.servers {
		st.Servers = append(st.Servers, Server{Name: srv.name, Up: srv.up, Ahead: srv.ahead.Milliseconds(), Keys: srv.keys()})
	}
	for _, c := range s.clients {
		st.Clients = append(st.Clients, s.client(c))
	}
	return st
}

func (s *Stage) client(c *client) Client {
	out := Client{
		Name: c.name, Paused: c.paused, Dead: c.ended.Err() != nil, ByHand: c.byHand, Hangs: !c.hangs.IsZero(),
		Ahead: time.Duration(c.ahead.Load()).Milliseconds(), Last: c.last,
	}
	s.locked(func() bool { out.Doing = slices.Clone(c.doing); return true })
	for _, h := range c.holds {
		if !h.believes || out.Dead {
			continue
		}
		seen := Hold{Name: h.name, Left: time.Until(h.lease.Deadline()).Milliseconds(), Renewed: h.renewed}
		if h.fenced {
			seen.Fence = s.names.brief(strconv.FormatUint(h.fence, 10))
		}
		out.Holds = append(out.Holds, seen)
	}
	for _, m := range s.wire {
		if m.client != c {
			continue
		}
		seen := Message{N: m.n, Words: m.words(), Late: m.late, First: s.first(m), Times: 1}
		if n := len(out.Wire) - 1; n >= 0 && out.Wire[n].Words == seen.Words && out.Wire[n].Late == seen.Late {
			out.Wire[n].Times++
		} else {
			out.Wire = append(out.Wire, seen)
		}
	}
	return out
}

// Diagram is the history as a sequence diagram of that width. It leaves out clients that have had no part in it.
func (s *Stage) Diagram(width int, paint diagram.Paint) string {
	seen := map[string]bool{}
	for _, e := range s.events {
		seen[e.From], seen[e.To] = true, true
	}
	var actors []diagram.Actor
	add := func(name string, server bool) {
		if seen[name] {
			actors = append(actors, diagram.Actor{Name: name, Server: server})
		}
	}
	for _, c := range s.clients {
		add(c.name, false)
	}
	for _, srv := range s.servers {
		seen[srv.name] = true
		add(srv.name, true)
	}
	add(dbName, true)
	return diagram.Draw(actors, s.events, width, paint)
}

// names makes what nobody can read short: the tokens, and the moments, which are counted from the beginning.
type names struct {
	mu     sync.Mutex
	called map[string]string // by UUID
	count  map[string]int    // by label
}

var (
	tokenRule  = regexp.MustCompile(`([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(:[A-Z]\b)?`)
	tailRule   = regexp.MustCompile(`"…([0-9a-f]{6})(:[A-Z])?"`) // a token as errors show it
	momentRule = regexp.MustCompile(`\b9466[89]\d{7}\b`)         // milliseconds
	fenceRule  = regexp.MustCompile(`\b9466[89]\d{10}\b`)        // microseconds
)

const (
	epoch = 946_684_800_000 // in milliseconds: when each bubble begins
	began = epoch + 1       // when the play does
)

func (n *names) brief(text string) string {
	text = tokenRule.ReplaceAllStringFunc(text, n.token)
	text = tailRule.ReplaceAllStringFunc(text, n.tail)
	text = momentRule.ReplaceAllStringFunc(text, func(ms string) string {
		v, _ := strconv.ParseInt(ms, 10, 64)
		return fmt.Sprintf("@%d", v-began)
	})
	return fenceRule.ReplaceAllStringFunc(text, func(us string) string {
		v, _ := strconv.ParseInt(us, 10, 64)
		return fmt.Sprint(v - epoch*1000)
	})
}

// all is the same of many texts.
func (n *names) all(texts []string) (brief []string) {
	for _, t := range texts {
		brief = append(brief, n.brief(t))
	}
	return brief
}

// command is the same of a command, in one line.
func (n *names) command(args []string) string { return diagram.Event{Args: n.all(args)}.Command() }

func (n *names) token(text string) string {
	id, label, _ := strings.Cut(text, ":")
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.called == nil {
		n.called, n.count = map[string]string{}, map[string]int{}
	}
	if n.called[id] == "" {
		if label == "" {
			label = "line" // by which a process is called in a queue
		}
		n.count[label]++
		n.called[id] = fmt.Sprintf("%s%d", label, n.count[label])
	}
	return n.called[id]
}

func (n *names) tail(text string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, name := range n.called {
		if strings.HasSuffix(id, tailRule.FindStringSubmatch(text)[1]) {
			return name
		}
	}
	return text
}
