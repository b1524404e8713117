package lessons

// Tests what a reader is asked to predict, and which answers are right.

import (
	"strings"
	"testing"
)

// TestJudge: an answer may leave out what redis-cli adds, and a reply that nobody can foresee is not counted.
func TestJudge(t *testing.T) {
	t.Parallel()
	reply := func(answer string) *Event { return &Event{Kind: Reply, Answer: answer} }
	words := func(means string) *Event { return &Event{Kind: Reply, Answer: "(integer) 1", Means: means} }
	for _, c := range []struct {
		topic topic
		reply *Event
		right []string // answers
		wrong []string
		judge string // to the right ones
	}{
		{theReply, reply("OK"), []string{"OK", " ok ", "(OK)"}, []string{"nil", "0"}, "✓ OK"},
		{theReply, reply("[OK]"), []string{"OK", "[OK]"}, []string{"nil"}, "✓ [OK]"},
		{theReply, reply("(nil)"), []string{"nil", "(nil)", "NULL"}, []string{"0", "nobody"}, "✓ (nil)"},
		{theReply, reply("(integer) 1"), []string{"1", "(integer) 1"}, []string{"11", "OK"}, "✓ (integer) 1"},
		{theReply, reply(`"token-of-A"`), []string{"token-of-A", `"token-of-A"`, "a"}, []string{"token-of-B"}, `✓ "token-of-A"`},
		{theReply, reply("(error) READONLY it is"), []string{"error"}, []string{"readable"}, "✓ (error) READONLY it is"},
		{theReply, reply("(no answer)"), []string{"no answer", "(no answer)", "none"}, nil, "✓ (no answer)"},
		{theReply, nil, []string{"nothing"}, nil, "✓ no answer so far"},
		{theReply, words("granted, with fence 7"), []string{"yes", "Y"}, []string{"no", "1"}, "✓ granted, with fence 7"},
		{theReply, words("refused: A holds it"), []string{"no", "n"}, []string{"yes"}, "✓ refused: A holds it"},
		{theReply, words("the hold is lost"), []string{"no"}, []string{"yes"}, "✓ the hold is lost"},
		{theAttempt, &Event{Kind: State, Condition: Holds, Text: "A believes it"}, []string{"yes"}, []string{"no"}, "✓ A believes it"},
		{theAttempt, &Event{Kind: Note, Text: "A hears: no"}, []string{"no"}, []string{"yes"}, "✓ A hears: no"},
		{theHolders, nil, []string{"R1 R2", "r2, r1", "R2 and R1"}, []string{"R1", "nobody"}, "✓ R1 and R2 believe that"},
	} {
		q := Quiz{holders: []string{"R1", "R2"}}
		asked := Question{topic: c.topic, about: &step{Event: Event{To: "redis"}, reply: c.reply}}
		for _, said := range c.right {
			if got := q.Judge(asked, said); got != c.judge {
				t.Errorf("%q: %s, want %s", said, got, c.judge)
			}
		}
		right := q.Right
		for _, said := range c.wrong {
			if got, want := q.Judge(asked, said), "✗"+strings.TrimPrefix(c.judge, "✓")+", not "+said; got != want {
				t.Errorf("%q: %s, want %s", said, got, want)
			}
		}
		if got := q.Judge(asked, " "); !strings.HasPrefix(got, "– ") {
			t.Errorf("of one who does not know: %s", got)
		}
		if right != len(c.right) || q.Right != right {
			t.Errorf("%s: %s", c.judge, q.Score())
		}
	}
	open := Question{topic: theAttempt, about: &step{}}
	held := Question{about: &step{Event: Event{To: "redis"}, reply: reply("(no answer)")}}
	nobody := Question{topic: theHolders, about: &step{}}
	var q Quiz
	if got := q.Judge(open, "yes") + q.Judge(held, "OK"); got != "– (no answer), which nobody can know: not counted" || q.Asked != 0 {
		t.Errorf("%s: %s", got, q.Score())
	}
	q.dead = map[string]bool{"redis": true}
	if got := q.Judge(held, "OK"); got != "✗ (no answer), not OK" || q.Asked != 1 {
		t.Errorf("of a dead server: %s, %s", got, q.Score())
	}
	if got := q.Judge(nobody, "nobody") + q.Judge(nobody, ""); got != "✓ nobody believes that– nobody believes that" {
		t.Errorf("%s", got)
	}
}

// TestAttempt: whether a client gets a majority is known at the end of its attempt, and not when one server has voted.
func TestAttempt(t *testing.T) {
	t.Parallel()
	for end, want := range map[*Event]string{
		{Kind: State, From: "A", Condition: Holds, Text: "A believes it holds the lock"}: "✗ A believes it holds the lock, not no",
		{Kind: Note, Text: "A hears: no quorum"}:                                         "✓ A hears: no quorum",
	} {
		var q Quiz
		q.Begins()
		on := []Actor{{Name: "A"}}
		var asked []Question
		for i, n := range []string{"n1", "n2", "n3"} {
			on = append(on, Actor{Name: n, Server: true})
			vote := Event{Kind: Send, From: "A", To: n, Args: []string{"EVALSHA", "acquire.lua", "1", "l", "t:A", "400", "400"}}
			asked = append(asked, q.Asks(vote, on)...)
			q.Happens(vote)
			q.Happens(Event{Kind: Reply, From: n, To: "A", Of: 2 * i, Answer: "(integer) 1", Means: "voted"})
			if got := q.Judge(asked[0], "no"); got != "" {
				t.Errorf("after a vote it is judged: %s", got)
			}
		}
		q.Happens(*end)
		if got := q.Judge(asked[0], "no"); len(asked) != 1 || got != want {
			t.Errorf("%d questions, %s, want %s", len(asked), got, want)
		}
	}
}
