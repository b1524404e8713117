package lessons

// Tests how the diagram of a lesson's trace is drawn in text, line by line and at the end.

import (
	"strings"
	"testing"
	"time"
)

func plain(_ Style, s string) string { return s }

// TestDrawing: an answer stands next to its command unless others did something in between;
// drawn as it happens it comes out as it does when it is over.
func TestDrawing(t *testing.T) {
	t.Parallel()
	a, b, one, two := Actor{Name: "A"}, Actor{Name: "B"}, Actor{Name: "n1", Server: true}, Actor{Name: "n2", Server: true}
	send := func(from, to, cmd string) Event { return Event{Kind: Send, From: from, To: to, Args: []string{cmd}} }
	reply := func(from, to string, of int, answer string) Event {
		return Event{Kind: Reply, From: from, To: to, Of: of, Answer: answer}
	}
	tr := Trace{Actors: []Actor{a, b, one, two}, Events: []Event{
		send("A", "n1", "ONE"), // 0
		send("A", "n2", "TWO"), // 1
		reply("n2", "A", 1, "2"),
		reply("n1", "A", 0, "1"),
		{Kind: State, From: "A", Condition: Holds, Text: "A believes it holds the lock"},
		send("A", "n1", "GET"), // 5
		send("B", "n1", "SET"), // 6
		reply("n1", "B", 6, "(nil)"),
		{Kind: State, From: "A", Condition: Paused, Text: "A is paused"},
		{Kind: Reply, From: "n1", To: "A", Of: 5, Answer: "3", At: 12345678 * time.Microsecond},
		{Kind: Violation, Text: "so it is"},
		send("B", "n1", "LAST"),
	}}
	want := []string{
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
	}
	got := strings.Split(strings.TrimRight(tr.Diagram(80, plain), "\n"), "\n")
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("line %d is\n%q, want\n%q", i, got[i], want[i])
		}
	}

	d := NewDrawing(80, plain)
	live := d.Head(tr.Actors)
	for i, e := range tr.Events {
		before := live
		live += d.Row(e)
		// At 2 the first command still waits.
		if waits := e.Kind == Send || i == 2; waits != d.Waits() {
			t.Errorf("after event %d it waits: %v, want %v", i, d.Waits(), waits)
		}
		if i == 6 && !strings.HasSuffix(live, "GET\n") || i == 2 && live != before {
			t.Errorf("after event %d there is\n%s", i, live)
		}
	}
	if live += d.Rest(); live != tr.Diagram(80, plain) || d.Waits() || d.Rest() != "" {
		t.Errorf("as it happens it is\n%s, over\n%s", live, tr.Diagram(80, plain))
	}
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
