package lessons

// Tests how requests and replies that have no names on the wire are said in words.

import "testing"

// TestWords: what the scripts of packages are asked, and what they answer, are sentences.
func TestWords(t *testing.T) {
	t.Parallel()
	keys := func(script string, siblings ...string) []string {
		all := []string{"EVALSHA", script + ".lua", string(rune('1' + len(siblings))), "l"}
		for _, s := range siblings {
			all = append(all, "l:"+s)
		}
		return all
	}
	fair := []string{"queue", "fence"}
	many := []string{"waiters", "fence", "permits"}
	readers := []string{"readers", "writers", "fence"}
	refused := []any{[]byte("t:A"), int64(390)}
	for _, c := range []struct {
		keys        []string
		args        []string
		reply       any
		asks, hears string
	}{
		{keys("acquire"), []string{"t:B", "400", "9", "1"}, int64(0), "acquire.lua l: t:B asks for the lock, for 400 ms", "granted, without a fence"},
		{keys("acquire", "fence"), []string{"t:B", "400", "9", "1"}, []any{int64(7), int64(2)}, "acquire.lua l: t:B asks for the lock, for 400 ms", "granted, with fence 7"},
		{keys("acquire", "fence"), []string{"owner", "t:B", "400", "", "9"}, nil, "", "the hold is lost"}, // of package reentrant
		{keys("acquire"), []string{"t:B", "400", "400"}, int64(1), "acquire.lua l: t:B asks for a vote, for 400 ms", "voted"},
		{keys("acquire"), []string{"t:B", "400", "400"}, int64(0), "acquire.lua l: t:B asks for a vote, for 400 ms", "it has that vote already"},
		{keys("acquire", "guard"), []string{"t:B", "400", "400"}, append(refused, int64(0)), "acquire.lua l: t:B asks for a vote, for 400 ms", "refused: t:A holds it for 390 ms"},
		{
			keys("acquire", "guard"), []string{"t:B", "400", "400"}, []any{[]byte("guard"), []byte("why"), int64(5), int64(400)},
			"acquire.lua l: t:B asks for a vote, for 400 ms", "refused: it does not vote for 5 ms more",
		},
		{
			keys("acquire", "guard", "fence"), []string{"t:B", "400", "400"}, []any{int64(1), int64(7), int64(1), int64(8), []byte("g")},
			"acquire.lua l: t:B asks for a vote, for 400 ms", "voted; the last fence noted here is 7",
		},
		{keys("acquire", fair...), []string{"400", "0", "9", "", "1", "t:B"}, refused, "acquire.lua l: t:B asks for the lock, for 400 ms", "refused: t:A holds it for 390 ms"},
		{
			keys("acquire", fair...), []string{"400", "0", "9", "e:B", "1", "t:B"}, append(refused, int64(8), int64(9), int64(3), int64(0)),
			"acquire.lua l: t:B asks for the lock, or a place in the queue, for 400 ms", "refused: t:A holds it for 390 ms; place 3 in the queue",
		},
		{
			keys("acquire", many...), []string{"2", "9", "400", "t:C", "1", "", "", "1"}, append(refused, int64(2), int64(2)),
			"acquire.lua l: t:C asks for 1 of 2 permits, for 400 ms", "refused: 2 of 2 permits are taken; that of t:A ends first, in 390 ms",
		},
		{
			keys("acquire", many...), []string{"2", "9", "400", "t:C", "1", "e:C"}, append(refused, int64(2), int64(2), int64(8), int64(9), int64(1), int64(0)),
			"acquire.lua l: t:C asks for 1 of 2 permits, or a place in the queue, for 400 ms",
			"refused: 2 of 2 permits are taken; that of t:A ends first, in 390 ms; place 1 in the queue",
		},
		{keys("acquire", readers...), []string{"9", "400", "t:R", "read", "1", ""}, int64(7), "acquire.lua l: t:R asks to read, for 400 ms", "granted, with fence 7"},
		{keys("adopt", readers...), []string{"9", "t:W", "400", "u:W", "1", "c"}, int64(7), "adopt.lua l: t:W is to read from now on, as u:W", "granted, with fence 7"},
		{keys("writeback", "guard", "fence"), []string{"t:B", "7", "g", "400", "9"}, int64(1), "writeback.lua l: note fence 7", "noted"},
		{keys("limit", many...), []string{"2", "9", "3", "c"}, int64(1), "limit.lua l: there are to be 3 permits", "set"},
		{keys("extend"), []string{"t:A", "400"}, int64(1), "extend.lua l: t:A asks for a TTL of 400 ms from now", "renewed"},
		{keys("extend"), []string{"t:A", "400"}, []any{int64(1)}, "extend.lua l: t:A asks for a TTL of 400 ms from now", "renewed"},
		{keys("extend"), []string{"t:A", "400"}, []any{[]byte("t:B")}, "extend.lua l: t:A asks for a TTL of 400 ms from now", "refused: the lock is another's, t:B"},
		{keys("release"), []string{"t:A", "c"}, []byte("t:B"), "release.lua l: t:A releases", "refused: the lock is another's, t:B"},
		{keys("release", fair...), []string{"", "9", "t:A", "c"}, int64(1), "release.lua l: t:A releases", "released"},
		{keys("release", many...), []string{"2", "9", "t:A", "", "c"}, int64(1), "release.lua l: t:A releases", "released"},
		{keys("release", readers...), []string{"9", "t:A", "", "c"}, nil, "release.lua l: t:A releases", "the hold is lost"},
		{keys("compare_delete"), []string{"t:A"}, int64(1), "", "granted, with fence 1"}, // nobody asks for the words of its replies
	} {
		request, ok := asCall(append(c.keys, c.args...))
		if asks, hears := request.means(), request.answers(c.reply); !ok || asks != c.asks || hears != c.hears {
			t.Errorf("%s of %q: %q, %q, want %q, %q", c.keys[1], c.args, asks, hears, c.asks, c.hears)
		}
	}
	for _, none := range [][]string{{"EVALSHA", "x.lua", "1"}, {"EVALSHA", "x.lua", "3", "l"}, {"EVALSHA", "x.lua", "many", "l"}, {"EVAL", "x.lua", "1", "l"}} {
		if _, ok := asCall(none); ok {
			t.Errorf("%q is no call of a script", none)
		}
	}
	for message, want := range map[string]string{
		"grant 7 16 400 1 2 t:B": "t:B holds it now, for 400 ms, with fence 7", "grant 0 0 400 1 2 t:B": "t:B holds it now, for 400 ms, without a fence",
		"next 390": "you are the next; ask again in 390 ms", "free": "",
	} {
		if got := hearsay(message); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}
