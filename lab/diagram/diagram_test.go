package diagram

// Tests how the diagram of a lesson's trace is drawn in text, line by line and at the end.

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func plain(_ Style, s string) string { return s }

func send(from, to, cmd string) Event {
	return Event{Kind: Send, From: from, To: to, Args: []string{cmd}}
}

func replied(from, to string, of int, answer string) Event {
	return Event{Kind: Reply, From: from, To: to, Of: of, Answer: answer}
}

// draws compares what is drawn of events, when all is over and as they happen, with lines.
func draws(t *testing.T, width, servers int, events []Event, want []string, each func(d *Drawing, i int, row string)) {
	t.Helper()
	actors := []Actor{{Name: "A"}, {Name: "B"}}
	for i := range servers {
		actors = append(actors, Actor{Name: fmt.Sprintf("n%d", i+1), Server: true})
	}
	whole := Draw(actors, events, width, plain)
	if lines := strings.Join(want, "\n") + "\n"; whole != lines {
		t.Errorf("it is\n%s\nwant\n%s", whole, lines)
	}
	d := NewDrawing(width, plain)
	live := d.Head(actors)
	for i, e := range events {
		row := d.Row(e)
		live += row
		each(d, i, row)
	}
	if live += d.Rest(); live != whole || d.Waits() || d.Rest() != "" {
		t.Errorf("as it happens it is\n%s, over\n%s", live, whole)
	}
}

// TestDrawing: an answer stands next to its command unless others did something in between;
// drawn as it happens it comes out as it does when it is over.
func TestDrawing(t *testing.T) {
	t.Parallel()
	events := []Event{
		send("A", "n1", "ONE"), // 0
		send("A", "n2", "TWO"), // 1
		replied("n2", "A", 1, "2"),
		replied("n1", "A", 0, "1"),
		{Kind: State, From: "A", Condition: Holds, Text: "A believes it holds the lock"},
		send("A", "n1", "GET"), // 5
		send("B", "n1", "SET"), // 6
		replied("n1", "B", 6, "(nil)"),
		{Kind: State, From: "A", Condition: Paused, Text: "A is paused"},
		{Kind: Reply, From: "n1", To: "A", Of: 5, Answer: "3", At: 12345678 * time.Microsecond},
		{Kind: Violation, Text: "so it is"},
		send("B", "n1", "LAST"),
	}
	draws(t, 80, 2, events, []string{
		"    ms   A   B    n1  n2",
		"   0.0   │───┼────▶│   │  ONE  → 1",
		"   0.0   │───┼─────┼──▶│  TWO  → 2",
		"         ║   │     │   │  A believes it holds the lock",
		"   0.0   ║───┼────▶│   │  GET",
		"   0.0   ║   │────▶│   │  SET  → (nil)",
		"         ┇   │     │   │  A is paused",
		" 12345   ┇◀╌╌┼╌╌╌╌╌│   │  → 3",
		"       ━━┇━━━│━━━━━│━━━│━ ✗ VIOLATED: so it is",
		"   0.0   ┇   │────▶│   │  LAST",
	}, func(d *Drawing, i int, row string) {
		// At 2 the first command still waits.
		if waits := events[i].Kind == Send || i == 2; waits != d.Waits() {
			t.Errorf("after event %d it waits: %v, want %v", i, d.Waits(), waits)
		}
		if i == 6 && !strings.HasSuffix(row, "GET\n") || i == 2 && row != "" {
			t.Errorf("after event %d there is\n%s", i, row)
		}
	})
}

// TestFan: what a client asks of several servers, side by side or one after the other, is one
// row, which says it all; what another asks in between ends it.
func TestFan(t *testing.T) {
	t.Parallel()
	draws(t, 60, 3, []Event{
		send("A", "n3", "SET"), // 0
		send("A", "n1", "SET"), // 1
		replied("n1", "A", 1, "OK"),
		send("A", "n2", "SET"), // 3
		replied("n3", "A", 0, "(nil)"),
		replied("n2", "A", 3, "OK"),
		send("B", "n1", "GET"), // 6
		replied("n1", "B", 6, "1"),
		send("B", "n3", "GET"), // 8
		replied("n3", "B", 8, "1"),
		send("B", "n3", "GET"), // 10: another command, as n3 has answered this one
		replied("n3", "B", 10, "1"),
		send("A", "n1", "LONG"), // 12
		send("A", "n2", "LONG"), // 13
		replied("n2", "A", 13, "an answer that takes a line of its own"),
		{Kind: Note, Text: "something happens"},
		replied("n1", "A", 12, "late"),
	}, []string{
		"    ms   A   B    n1  n2  n3",
		"   0.0   │───┼────▶┼──▶┼──▶│  SET  → n1 n2: OK  → n3: (nil)",
		"   0.0   │   │────▶┼───┼──▶│  GET  → n1 n3: 1",
		"   0.0   │   │─────┼───┼──▶│  GET  → 1",
		"   0.0   │───┼────▶┼──▶│   │  LONG",
		"         │   │     │   │   │    → n2: an answer that takes a",
		"         │   │     │   │   │    line of its own",
		"         │   │     │   │   │  something happens",
		"   0.0   │◀╌╌┼╌╌╌╌╌│   │   │  → late",
	}, func(*Drawing, int, string) {})
}

// TestCommand: a long argument is cut, and has whole quotes if it has any.
func TestCommand(t *testing.T) {
	t.Parallel()
	e := Event{Args: []string{"SET", "", "a b", "short", "a-token-of-many-letters-1234:A", "entry\x00of-many-letters-1234:B", "a script\nthat returns 1 at its end\n"}}
	if got, want := e.Command(), `SET "" "a b" short …s-1234:A …s-1234:B "…its end\n"`; got != want {
		t.Errorf("Command() = %s, want %s", got, want)
	}
}

// TestDrawingWidens: a newcomer gets a line, and the others' go on as they were.
func TestDrawingWidens(t *testing.T) {
	t.Parallel()
	d := NewDrawing(80, plain)
	redis := Actor{Name: "redis", Server: true}
	d.Head([]Actor{{Name: "A"}, redis})
	d.Row(Event{Kind: State, From: "A", Condition: Holds, Text: "A believes it holds the lock"})
	head := d.Head([]Actor{{Name: "A"}, {Name: "B"}, redis})
	row := d.Row(Event{Kind: Note, Text: "so it goes"})
	if strings.Join(strings.Fields(head), " ") != "ms A B redis" || strings.Join(strings.Fields(row), " ") != "║ │ │ so it goes" {
		t.Errorf("there is\n%s%s", head, row)
	}
}
