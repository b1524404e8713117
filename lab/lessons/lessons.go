// Package lessons is the evolution of lock designs as programs: each known failure happens
// on real servers, and then the design that fixes it is put in the same place. A lesson is a
// short story on a [Stage]; what it shows are commands that ran, with the replies that came,
// and its verdicts are computed from these. It prints nothing but diagrams; cmd/lab does
// the rest.
package lessons

import (
	"cmp"
	"embed"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstrategies/locks/driver"
)

// A Lesson is a rung of the ladder.
type Lesson struct {
	Number int
	Name   string // one word, or some with hyphens
	Title  string
	Idea   string // how it works, and how it fails
	Fix    string // what fixes the failure that was shown, or bounds it
	Acts   []Act

	// Servers is how many it takes, 1 by default. Own: they have to be its own, as it breaks
	// them.
	Servers int
	Own     bool

	names []string // of the servers, where they are not all the same to the story
}

// An Act is one run on servers that know nothing of the run before: first the design that
// fails, say, then the one that does not.
type Act struct {
	Title string

	// Timed: time is its subject, so --step pauses before it but not in it.
	Timed bool

	// long is its locks' TTL, in usual ones, for what has to end before that and takes
	// seconds, such as the restart of a server. 0: one.
	long int

	lists []string // the scripts that the reader is to read, by their names
	play  any      // a function of a *Stage and of clients
	cast  string   // the clients' names, if not A, B, and so on
}

func (a Act) perform(s *Stage) {
	play, in := reflect.ValueOf(a.play), []reflect.Value{reflect.ValueOf(s)}
	names := strings.Fields(cmp.Or(a.cast, "A B C D"))
	for len(in) < play.Type().NumIn() {
		in = append(in, reflect.ValueOf(s.client(names[len(in)-1])))
	}
	play.Call(in)
}

// All returns the lessons in order.
func All() []Lesson {
	all := slices.Concat(setnxLessons(), timestampLessons(), tokenLessons(), watchdogLessons(), fenceLessons(), reentrantLessons(),
		durabilityLessons(), redlockLessons(), redlockFenceLessons(), herdLessons(), saleLessons(),
		clockBackLessons(), waitZeroLessons(), permitLessons(), readerLessons())
	slices.SortFunc(all, func(a, b Lesson) int { return a.Number - b.Number })
	return all
}

// Find finds a lesson by its number, its name, or the beginning of that.
func Find(which string) (Lesson, error) {
	var found []Lesson
	for _, l := range All() {
		if strconv.Itoa(l.Number) == which || l.Name == which {
			return l, nil
		}
		if strings.HasPrefix(l.Name, strings.ToLower(which)) {
			found = append(found, l)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		all := All()
		return Lesson{}, fmt.Errorf("there is no lesson %q: allowed are %d to %d, and the names that 'lab lesson' lists", which, all[0].Number, all[len(all)-1].Number)
	}
	var names []string
	for _, l := range found {
		names = append(names, l.Name)
	}
	return Lesson{}, fmt.Errorf("%q may be each of the lessons %s", which, strings.Join(names, ", "))
}

//go:embed *.lua
var sources embed.FS

// script is one that acts run, from the file of its name.
func script(name string) *driver.Script {
	source, err := sources.ReadFile(name + ".lua")
	if err != nil {
		panic(err)
	}
	return driver.NewScript(name, string(source))
}
