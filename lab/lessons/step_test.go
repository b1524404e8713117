package lessons

// Lessons given step by step: each comes to what it has to show, and ends at any step.

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

type watcher struct {
	mu     sync.Mutex
	begun  []Trace
	events []Event
	actors []Actor
	ended  []Trace
	live   [][]Event // of each act

	quiz   Quiz
	says   func(Question) string // what a reader answers
	judges []func() string
	judged []string
}

func (w *watcher) Begins(tr Trace) {
	w.begun, w.events = append(w.begun, tr), nil
	w.quiz.Begins()
}

// predicts has the reader answer what there is to ask about a step.
func (w *watcher) predicts(next Event, on []Actor) {
	w.judge()
	for _, question := range w.quiz.Asks(next, on) {
		said := w.says(question)
		w.judges = append(w.judges, func() string {
			if judged := w.quiz.Judge(question, said); judged != "" {
				return question.Words + " " + judged
			}
			return ""
		})
	}
}

func (w *watcher) judge() {
	w.judges = slices.DeleteFunc(w.judges, func(judge func() string) bool {
		said := judge()
		if said != "" {
			w.judged = append(w.judged, said)
		}
		return said != ""
	})
}

func (w *watcher) Happens(e Event, on []Actor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events, w.actors = append(w.events, e), slices.Clone(on)
	w.quiz.Happens(e)
}

func (w *watcher) Ends(tr Trace) {
	w.judge()
	w.ended, w.live = append(w.ended, tr), append(w.live, w.events)
}

// TestSteps: lessons come to the same when somebody else decides how long each step takes,
// and are seen as they happen.
func TestSteps(t *testing.T) {
	sc := Open(redistest.ForTests(t))
	defer sc.Close()
	for _, l := range All() {
		t.Run(l.Name, func(t *testing.T) {
			w := &watcher{says: func(Question) string { return "" }}
			var mu sync.Mutex
			steps := 0
			sc.Watch = w
			sc.Step = func(next Event, on []Actor) error {
				mu.Lock()
				defer mu.Unlock()
				steps++
				w.predicts(next, on)
				return nil
			}
			r, err := sc.Perform(t.Context(), l)
			if err != nil {
				redistest.Skip(t, err, "that the lesson can be stepped through")
			}
			if len(w.begun) != len(l.Acts) || len(w.ended) != len(l.Acts) || steps < 2*len(l.Acts) {
				t.Fatalf("%d acts began, %d ended, in %d steps", len(w.begun), len(w.ended), steps)
			}
			for i, a := range l.Acts {
				tr := w.ended[i]
				if w.begun[i].Title != a.Title || len(w.begun[i].Actors) == 0 || !reflect.DeepEqual(tr, r.Acts[i]) {
					t.Errorf("%q began as %+v, and ended as\n%+v, want\n%+v", a.Title, w.begun[i], tr, r.Acts[i])
				}
				if !a.Timed && !reflect.DeepEqual(w.live[i], tr.Events) || a.Timed && w.live[i] != nil {
					t.Errorf("%q: seen live\n%+v, want\n%+v", a.Title, w.live[i], tr.Events)
				}
			}
			holds(t, l, r)
			if w.quiz.Asked > mostQuestions || w.quiz.Asked < 1 || w.quiz.Right > 0 || len(w.judges) > 0 {
				t.Errorf("%d questions are open, and %s, of a reader who knows nothing:\n%s", len(w.judges), w.quiz.Score(), strings.Join(w.judged, "\n"))
			}
		})
	}
}

// TestStepsEnd: a reader who has enough ends the lesson, at any step, and nothing happens after
// that, nor is anything left; the same where the whole is called off.
func TestStepsEnd(t *testing.T) {
	sc := Open(redistest.ForTests(t))
	defer sc.Close()
	l, err := Find("compare-delete")
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	for at := range 25 {
		for _, off := range []bool{false, true} {
			ctx, cancel := context.WithCancelCause(t.Context())
			w, steps, seen := &watcher{}, 0, 0
			sc.Watch = w
			sc.Step = func(Event, []Actor) error {
				if steps++; steps < at+1 {
					return nil
				}
				seen = len(w.events)
				if off {
					cancel(enough)
				}
				return enough
			}
			_, err := sc.Perform(ctx, l)
			if err != nil && !errors.Is(err, enough) || err == nil && steps > at || steps > at+1 {
				t.Errorf("ended at step %d: %d steps, %v", at+1, steps, err)
			}
			if err != nil && len(w.events) != seen {
				t.Errorf("after the end at step %d there is %+v", at+1, w.events[seen:])
			}
			cancel(nil)
		}
	}
}
