package lessons

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/lockstrategies/locks/lab/diagram"
)

// A Quiz asks a reader of one lesson what its steps will come to, and judges the answers by what happened. It asks only
// where the answer is not known already. Its user calls Begins and Happens as those of a [Watcher].
type Quiz struct {
	Asked, Right int // how many answers were judged, and how many of them were right

	mu     sync.Mutex
	put    int        // questions so far
	acts   [][]string // the steps of each act so far: see outline
	latest *step      // the reader was asked about it last

	// In this act:
	events  int
	asked   map[string]int   // how often the same was asked since somebody's state changed
	granted map[string]bool  // servers that have granted the lock to somebody
	tried   bool             // somebody has asked for the lock
	odd     bool             // something besides commands has happened since somebody got it
	strange map[string]bool  // clients of whom a note says what is special, such as a wrong clock
	dead    map[string]bool  // clients and servers
	holders []string         // who believe they hold the lock
	phrase  string           // what they believe
	votes   map[string]int   // of each client, since its state changed
	tries   map[string]*step // of each client, an attempt at a majority that has come to nothing yet
	times   bool             // the lock's value is a time, which nobody can predict
}

// A step is a command that the reader is asked about, and what came of it.
type step struct {
	Event
	at    int    // its place among the events; -1: it has not happened
	reply *Event // or the end of an attempt; nil: none has come
}

// A Question is about the step that comes next.
type Question struct {
	Words string
	Forms string // which answers there are
	about *step
	topic topic
}

// A topic is what a Question is about.
type topic int

const (
	theReply topic = iota
	theHolders
	theAttempt // whether a client gets a majority
)

// mostQuestions is the limit for a lesson.
const mostQuestions = 16

// Begins is called when an act does.
func (q *Quiz) Begins() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.acts = append(q.acts, nil)
	q.events, q.latest, q.times, q.holders, q.tried, q.odd = 0, nil, false, nil, false, false
	q.asked, q.votes, q.tries = map[string]int{}, map[string]int{}, map[string]*step{}
	q.granted, q.dead, q.strange = map[string]bool{}, map[string]bool{}, map[string]bool{}
}

// Happens gets each event of an act that goes by steps.
func (q *Quiz) Happens(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.events
	q.events++
	switch e.Kind {
	case Send:
		if p := q.latest; p != nil && p.at < 0 && p.From == e.From && p.To == e.To && slices.Equal(p.Args, e.Args) {
			p.at = at
		}
		q.tried = q.tried || takes(e)
		q.times = q.times || slices.ContainsFunc(e.Args[1:], moment.MatchString)
	case Reply:
		if p := q.latest; p != nil && p.at == e.Of {
			p.reply = &e
		}
		if e.Answer == "OK" || e.Answer == "(integer) 1" || strings.HasPrefix(e.Means, "granted") {
			q.granted[e.From] = true
			q.votes[e.To]++
		}
	case State:
		q.changes(e)
		clear(q.asked)
		q.odd = e.Condition != Holds && q.tried
	case Note, Violation:
		for key := range q.asked { // it may be asked once more
			q.asked[key] = min(q.asked[key], 2) - 1
		}
		q.odd = q.tried
		if m := ofClient.FindStringSubmatch(e.Text); m != nil {
			q.strange[m[1]] = true
		}
	}
	for who, try := range q.tries {
		if e.Condition == Holds && e.From == who || strings.HasPrefix(e.Text, who+" hears: ") {
			try.reply = &e
			delete(q.tries, who)
		}
	}
}

// ofClient is how a note begins that is about a client.
var ofClient = regexp.MustCompile(`^(\w+)'s `)

// moment is a time in Unix milliseconds.
var moment = regexp.MustCompile(`^\d{13}$`)

// changes: somebody's state does.
func (q *Quiz) changes(e Event) {
	delete(q.votes, e.From)
	switch e.Condition {
	case Holds:
		q.holders = append(q.holders, e.From)
		slices.Sort(q.holders)
		_, q.phrase, _ = strings.Cut(e.Text, " believes it ")
	case Dead:
		q.dead[e.From] = true
		fallthrough
	case Ended:
		q.holders = slices.DeleteFunc(q.holders, func(name string) bool { return name == e.From })
	case Alive:
		delete(q.dead, e.From)
	}
}

// Asks returns the questions about the next step. There is none if an act before has shown the same, or if this act has.
func (q *Quiz) Asks(next Event, on []Actor) (questions []Question) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.latest = nil
	act := len(q.acts) - 1
	q.acts[act] = append(q.acts[act], outline(next))
	if next.Kind != Send {
		return nil
	}
	voters := len(slices.DeleteFunc(slices.Clone(on), func(a Actor) bool { return !a.Server || !voter.MatchString(a.Name) }))
	about := &step{Event: next, at: -1}
	switch {
	case voters > 0 && next.Args[0] == "EVALSHA" && next.Args[1] == "acquire.lua":
		if q.tries[next.From] == nil {
			q.tries[next.From] = about
			questions = append(questions, Question{Words: "does " + next.From + " get the lock?", Forms: yesOrNo, about: about, topic: theAttempt})
		}
	case q.known():
	default:
		words, forms := q.asksReply(next, voters > 0)
		again := q.repeats(next)
		if again && voters == 0 {
			return nil
		}
		if words != "" && !again {
			questions = append(questions, Question{Words: words, Forms: forms, about: about})
		}
		if believes := q.asksHolders(next, voters); believes != "" {
			questions = append(questions, Question{
				Words: "who believes then that it " + believes + "?", Forms: "one name or more, such as A B, or nobody", about: about, topic: theHolders,
			})
		}
	}
	questions = questions[:min(len(questions), mostQuestions-q.put)]
	q.put += len(questions)
	if len(questions) > 0 && q.tries[next.From] != about {
		q.latest = about
	}
	return questions
}

const yesOrNo = "yes or no"

// known reports whether an act before began with all the steps that this one has had so far.
func (q *Quiz) known() bool {
	act := len(q.acts) - 1
	steps := q.acts[act]
	return slices.ContainsFunc(q.acts[:act], func(earlier []string) bool {
		return len(earlier) >= len(steps) && slices.Equal(earlier[:len(steps)], steps)
	})
}

// asksHolders returns what holders believe, if somebody else holds the lock and the next command may add a holder. It is
// empty if the answer is plain.
func (q *Quiz) asksHolders(next Event, voters int) (believes string) {
	others := slices.ContainsFunc(q.holders, func(name string) bool { return name != next.From })
	blind := next.Args[0] == "SET" && !slices.Contains(next.Args, "NX")
	switch {
	case !others || q.dead[next.To] || !takes(next) || blind && q.times || !blind && !q.odd && !q.strange[next.From]:
		return ""
	case voters > 0 && q.votes[next.From] < voters/2:
		return "" // one more vote makes no majority
	case strings.HasPrefix(q.phrase, "may "):
		return "may read or write"
	}
	return q.phrase
}

// voter is the name of a server whose answer is one vote of several.
var voter = regexp.MustCompile(`^n\d$`)

// outline is a step without what differs from act to act: keys, tokens, times.
func outline(e Event) string {
	words := slices.DeleteFunc(slices.Clone(e.Args), func(w string) bool { return strings.Contains(w, "{") || moment.MatchString(w) })
	if e.Means != "" { // tokens are new each time
		words = words[:2]
	}
	return strings.Join(append(words, e.From, e.To, e.Text), " ")
}

// asksReply returns how to ask for the reply, and which replies there may be. It is empty where nobody learns by that.
func (q *Quiz) asksReply(e Event, voters bool) (words, forms string) {
	const plain = "the answer?"
	switch e.Args[0] {
	case "SET":
		if slices.Contains(e.Args, "NX") {
			return plain, "OK, or nil: the key was there"
		}
	case "SETNX", "DEL", "EXISTS":
		return plain, "1 or 0: how many keys were set, deleted, or found"
	case "GET":
		if !q.times {
			return plain, "what the key holds, such as token-of-A; or nil"
		}
	case "EXEC":
		return plain, "OK: all was done; or nil: nothing, as the key had changed"
	case "INCR", "HINCRBY":
		return plain, "a number, the new one"
	case "WAIT":
		return plain, "a number: how many replicas have confirmed"
	case "EVALSHA", "EVAL":
		if e.Means != "" && !voters {
			return "does it get that?", yesOrNo
		}
		if forms := returns(e.Args[1]); forms != "" {
			return plain, forms
		}
	}
	return "", ""
}

// returns is what the head of a lesson's script says of its replies; empty for other scripts.
func returns(script string) string {
	source, _ := sources.ReadFile(script)
	_, after, _ := strings.Cut(string(source), "\n-- Returns")
	head, _, _ := strings.Cut(after, "\n\n")
	var all []string
	for line := range strings.Lines(head) {
		all = append(all, strings.Join(strings.Fields(strings.TrimPrefix(line, "--")), " "))
	}
	return strings.Join(all, "; ")
}

// takes reports whether the command may make its sender a holder.
func takes(e Event) bool {
	switch e.Args[0] {
	case "SET":
		return strings.HasPrefix(e.Args[1], "lock:")
	case "SETNX", "GETSET", "EXEC", "INCR":
		return true
	case "EVALSHA":
		return slices.Contains([]string{
			"rank_permit.lua", "count_lock.lua", "count_read.lua", "count_write.lua", "share_read.lua", "share_write.lua",
		}, e.Args[1]) || e.Means != "" && e.Args[1] == "acquire.lua"
	}
	return false
}

// repeats reports whether the same was asked since somebody's state changed, or whether all acts begin like this: one client
// gets the lock, and others do not. A request for a lock is the same from any client, if nobody has got the lock in between.
func (q *Quiz) repeats(e Event) bool {
	key := fmt.Sprint(e.Args[0], e.Args[min(1, len(e.Args)-1)])
	if takes(e) {
		if len(q.acts) > 1 && !q.odd && !q.strange[e.From] {
			return true
		}
		key += fmt.Sprint(q.granted[e.To])
	} else {
		key += e.From
	}
	q.asked[key]++
	return q.asked[key] > 1
}

// Judge compares an answer with what happened. What it says begins with a mark: ✓, ✗, or – for a reader who does not know.
// It is empty while an attempt has not ended. A reply that is lost on its way is not counted, unless the reader says so:
// nobody can foresee that.
func (q *Quiz) Judge(asked Question, said string) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	was, right := "", false
	switch reply := asked.about.reply; {
	case asked.topic == theHolders:
		was, right = believers(q.holders), slices.Equal(namesIn(said), lower(q.holders))
	case asked.topic == theAttempt && reply == nil:
		return ""
	case asked.topic == theAttempt:
		was, right = reply.Text, agrees(said, reply.Condition == Holds)
	case reply == nil || reply.Answer == "(no answer)" || reply.Answer == "(not sent)":
		was, right = "no answer so far", slices.Contains([]string{"no answer", "not sent", "none", "nothing", "error"}, plainWords(said))
		if reply != nil {
			was = reply.Answer
		}
		if !right && !q.dead[asked.about.To] {
			return "– " + was + ", which nobody can know: not counted"
		}
	case reply.Means != "":
		was, right = diagram.Brief(reply.Means), agrees(said, !strings.HasPrefix(reply.Means, "refused") && !strings.HasSuffix(reply.Means, " lost"))
	default:
		was = reply.Answer
		right = plainWords(said) == plainWords(was) || plainWords(said) == "error" && strings.HasPrefix(was, "(error) ")
	}
	q.Asked++
	switch said = strings.TrimSpace(said); {
	case right:
		q.Right++
		return "✓ " + was
	case said == "":
		return "– " + was
	}
	return "✗ " + was + ", not " + said
}

// agrees reports whether an answer says yes, or no where that is right.
func agrees(said string, yes bool) bool {
	word := plainWords(said)
	if yes {
		return word == "yes" || word == "y"
	}
	return word == "no" || word == "n"
}

// Score is how many predictions were right.
func (q *Quiz) Score() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return fmt.Sprintf("%d of %d answers right", q.Right, q.Asked)
}

func believers(names []string) string {
	switch len(names) {
	case 0:
		return "nobody believes that"
	case 1:
		return names[0] + " believes that"
	}
	return sentence(names) + " believe that"
}

// plainWords is a reply without what redis-cli puts around it, which a reader may leave out.
func plainWords(reply string) string {
	word := strings.ToLower(strings.Trim(strings.TrimSpace(reply), "[]"))
	word = strings.TrimSpace(strings.TrimPrefix(word, "(integer)"))
	word = strings.TrimPrefix(strings.Trim(word, "()\"' "), "token-of-")
	if word == "null" {
		return "nil"
	}
	return word
}

// namesIn are the names in an answer, in order: none of them for "nobody", and an empty one for no answer.
func namesIn(said string) (all []string) {
	words := strings.FieldsFunc(strings.ToLower(said), func(r rune) bool { return strings.ContainsRune(" ,;&+", r) })
	if len(words) == 0 {
		return []string{""}
	}
	for _, w := range words {
		if !slices.Contains([]string{"and", "nobody", "none", "no"}, w) {
			all = append(all, w)
		}
	}
	slices.Sort(all)
	return all
}

func lower(names []string) (all []string) {
	for _, n := range names {
		all = append(all, strings.ToLower(n))
	}
	slices.Sort(all)
	return all
}
