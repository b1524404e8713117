package lessons

// Requests of one client to several servers become one row of the diagram.

import (
	"strings"
	"testing"
)

// TestFan: what a client asks of several servers, side by side or one after the other, is one
// row, which says it all; what another asks in between ends it.
func TestFan(t *testing.T) {
	t.Parallel()
	actors := []Actor{{Name: "A"}, {Name: "B"}}
	for _, name := range []string{"n1", "n2", "n3"} {
		actors = append(actors, Actor{Name: name, Server: true})
	}
	send := func(from, to, cmd string) Event { return Event{Kind: Send, From: from, To: to, Args: []string{cmd}} }
	reply := func(from, to string, of int, answer string) Event {
		return Event{Kind: Reply, From: from, To: to, Of: of, Answer: answer}
	}
	tr := Trace{Actors: actors, Events: []Event{
		send("A", "n3", "SET"), // 0
		send("A", "n1", "SET"), // 1
		reply("n1", "A", 1, "OK"),
		send("A", "n2", "SET"), // 3
		reply("n3", "A", 0, "(nil)"),
		reply("n2", "A", 3, "OK"),
		send("B", "n1", "GET"), // 6
		reply("n1", "B", 6, "1"),
		send("B", "n3", "GET"), // 8
		reply("n3", "B", 8, "1"),
		send("B", "n3", "GET"), // 10: another command, as n3 has answered this one
		reply("n3", "B", 10, "1"),
		send("A", "n1", "LONG"), // 12
		send("A", "n2", "LONG"), // 13
		reply("n2", "A", 13, "an answer that takes a line of its own"),
		{Kind: Note, Text: "something happens"},
		reply("n1", "A", 12, "late"),
	}}
	want := []string{
		"    ms   A   B    n1  n2  n3",
		"   0.0   │───┼────▶┼──▶┼──▶│  SET  → n1 n2: OK  → n3: (nil)",
		"   0.0   │   │────▶┼───┼──▶│  GET  → n1 n3: 1",
		"   0.0   │   │─────┼───┼──▶│  GET  → 1",
		"   0.0   │───┼────▶┼──▶│   │  LONG",
		"         │   │     │   │   │    → n2: an answer that takes a",
		"         │   │     │   │   │    line of its own",
		"         │   │     │   │   │  something happens",
		"   0.0   │◀╌╌┼╌╌╌╌╌│   │   │  → late",
	}
	got := strings.Split(strings.TrimRight(tr.Diagram(60, plain), "\n"), "\n")
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	d := NewDrawing(60, plain)
	live := d.Head(tr.Actors)
	for _, e := range tr.Events {
		live += d.Row(e)
	}
	if live += d.Rest(); live != tr.Diagram(60, plain) {
		t.Errorf("as it happens it is\n%s", live)
	}
}
