package main

// The program lab: lessons, whole and step by step.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/clitest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lab/lessons"
)

// TestLessonList: each lesson is there in a line, which fits, and how to run one.
func TestLessonList(t *testing.T) {
	out := givenLesson(t, 120)
	for _, l := range lessons.All() {
		want := regexp.MustCompile(fmt.Sprintf(`(?m)^ ?%d  %s +%s$`, l.Number, regexp.QuoteMeta(l.Name), regexp.QuoteMeta(l.Title)))
		if n := len(want.FindAllString(out, -1)); n != 1 {
			t.Errorf("lesson %d is there %d times in\n%s", l.Number, n, out)
		}
	}
	wantShape(t, givenLesson(t, 80), 80)
	if !strings.Contains(out, "\nlab lesson ") || !strings.Contains(out, "--all") {
		t.Errorf("it does not say how to run one:\n%s", out)
	}
}

// wantShape: no line is wider, or ends with spaces.
func wantShape(t *testing.T, out string, width int) {
	t.Helper()
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if n := textWidth(line); n > width {
			t.Errorf("a line has %d columns, want %d at most: %q", n, width, line)
		}
		if strings.TrimRight(line, " ") != line {
			t.Errorf("a line ends with spaces: %q", line)
		}
	}
}

var (
	lessonTime = regexp.MustCompile(`(?m)^( *[0-9]+\.[0-9])  `)
	lessonTTL  = regexp.MustCompile(`PX (400|800)\b`) // more where the machine was slow
	lessonName = regexp.MustCompile(`tea-[0-9a-f]{4}`)
)

// timeless is a lesson's output without what differs each time: after the choice of the
// Redis, times and names.
func timeless(out string) string {
	_, out, _ = strings.Cut("\n"+out, "\n\n")
	out = lessonTime.ReplaceAllString(out, "   0.0  ")
	out = lessonTTL.ReplaceAllString(out, "PX 400")
	return lessonName.ReplaceAllString(out, "tea-0000")
}

// givenLesson is the output of lessons that were given well. On a machine that was so slow that
// they took longer TTLs, which are wider, they are given again.
func givenLesson(t *testing.T, width int, args ...string) string {
	t.Helper()
	for range 5 {
		cmd := clitest.Command(t, append([]string{"lesson"}, args...)...)
		cmd.Env = append(cmd.Env, fmt.Sprint("COLUMNS=", width))
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("lab lesson %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
		}
		if !strings.Contains(out.String(), "PX 1600") && !strings.Contains(out.String(), "PX 3200") {
			return out.String()
		}
	}
	t.Skip("NOT PROVEN: what lessons look like: the machine is too slow")
	return ""
}

// TestLessonText: this is what lessons look like.
func TestLessonText(t *testing.T) {
	out := givenLesson(t, 80, "8", "--embedded")
	if !strings.HasPrefix(out, "redis: EMBEDDED ") || strings.Contains(out, "\x1b") {
		t.Errorf("want the choice first, and no colours:\n%s", out)
	}
	wantShape(t, out, 80)
	wantGolden(t, "lesson-80.txt", timeless(out))
}

func wantGolden(t *testing.T, name, got string) {
	t.Helper()
	golden := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("there is\n%s\nwant %s (go test -update writes it again):\n%s", got, golden, want)
	}
}

// TestLessonScript: scripts that ran can be read.
func TestLessonScript(t *testing.T) {
	out := givenLesson(t, 80, "setnx", "lua", "--embedded")
	wantShape(t, out, 80)
	if strings.Count(out, "Double line ║") != 1 {
		t.Errorf("want how to read diagrams once:\n%s", out)
	}
	if strings.Index(out, "\nLESSON 1  ") > strings.Index(out, "\nLESSON 9  ") || strings.Contains(out, "\nNext: ") {
		t.Errorf("want lesson 1, and then 9, which says by itself that it is next:\n%s", out)
	}
	for _, want := range []string{"\ncompare_delete.lua:\n    -- compare_delete: ", "\n      return redis.call('DEL', KEYS[1])\n", "✓ KEPT      one holder"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in\n%s", want, out)
		}
	}
}

// TestLessonJSON: on a server with a password, on which nothing is left.
func TestLessonJSON(t *testing.T) {
	all := locked(t, 1)
	s := all[0]
	got := decoded[[]lessons.Result](t, all, "lesson", "lua", "1")
	if len(got) != 2 || got[0].Number != 9 || got[1].Name != "setnx" || len(got[0].Acts) != 4 || len(got[0].Acts[0].Listings) != 1 {
		t.Fatalf("there is %+v", got)
	}
	for _, r := range got {
		actors := r.Acts[0].Actors
		if r.Redis != s.Version() || len(r.Acts[0].Events) < 5 || len(r.Acts[0].Verdicts) == 0 || actors[len(actors)-1].URL != "redis://"+s.Addr() {
			t.Errorf("%+v", r)
		}
	}
	wantSwept(t, s)
}

// TestLessonJSONUnfinished: what was given is printed, also when a later one could not be.
func TestLessonJSONUnfinished(t *testing.T) {
	out, errs, code := clitest.Run(t, "lesson", "setnx", "fail-over", "--embedded", "--json")
	var got []lessons.Result
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got) != 1 || got[0].Name != "setnx" {
		t.Errorf("%v, %d lessons in\n%s", err, len(got), out)
	}
	if code != 1 || !strings.Contains(errs, "lesson 14 breaks its servers") || !strings.Contains(errs, "Without --embedded") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if out, _, code := clitest.Run(t, "lesson", "fail-over", "--embedded", "--json"); code != 1 || out != "" {
		t.Errorf("exit %d, %q: want nothing where there is nothing", code, out)
	}
}

// stepped is a lesson under way, at a prompt.
type stepped struct {
	*exec.Cmd
	t     *testing.T
	in    io.WriteCloser
	out   *bufio.Reader
	errs  bytes.Buffer
	shown string // up to the prompt
}

// steps begins lessons on a server.
func steps(t *testing.T, on *redistest.Server, lessons ...string) *stepped {
	t.Helper()
	s := &stepped{t: t, Cmd: clitest.Command(t, slices.Concat([]string{"lesson", "--step", "--redis", on.URL()}, lessons)...)}
	in, err1 := s.StdinPipe()
	out, err2 := s.StdoutPipe()
	s.Stderr = &s.errs
	if err := errors.Join(err1, err2, s.Start()); err != nil {
		t.Fatal(err)
	}
	s.in, s.out = in, bufio.NewReader(out)
	return s
}

// until reads up to the next prompt, or to the end.
func (s *stepped) until() (prompt string) {
	s.t.Helper()
	for {
		part, err := s.out.ReadString(']')
		s.shown += part
		if err != nil {
			return ""
		}
		if prompt, ok := strings.CutSuffix(s.shown, "   [Enter]"); ok {
			return prompt[strings.LastIndex(prompt, "\n")+1:]
		}
	}
}

func (s *stepped) enter(word string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, word+"\n"); err != nil {
		s.t.Fatal(err)
	}
}

// TestLessonStep: the reader decides when each command happens, and can look at the Redis
// before it does.
func TestLessonStep(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	st := steps(t, s, "8")
	var prompts []string
	for p := st.until(); p != ""; p = st.until() {
		prompts = append(prompts, lessonName.ReplaceAllString(p, "tea"))
		keys := redistest.Do(t, s, "KEYS", "lock:*").([]any)
		if n := len(prompts); len(keys) != map[int]int{2: 1, 3: 1, 5: 1, 7: 1, 8: 1, 9: 1, 11: 1, 12: 1, 14: 1}[n] {
			t.Errorf("at step %d, before %q, there is %q", n, p, keys)
		}
		st.enter("")
	}
	if err := st.Wait(); err != nil {
		t.Errorf("%v:\n%s", err, st.shown)
	}
	const over = "the act is over, and what it has left on the servers goes away"
	want := []string{
		"A → redis: SET lock:{tea} token-of-A NX PX 1800000", "A → redis: GET lock:{tea}", "A → redis: DEL lock:{tea}",
		"B → redis: SET lock:{tea} token-of-B NX PX 1800000", over,
		"A → redis: SET lock:{tea} token-of-A NX PX 1800000", "A → redis: GET lock:{tea}", "A is paused", "a TTL goes by",
		"B → redis: SET lock:{tea} token-of-B NX PX 1800000", "A goes on", "A → redis: DEL lock:{tea}",
		"C → redis: SET lock:{tea} token-of-C NX PX 1800000", over,
	}
	if !slices.Equal(prompts, want) {
		t.Errorf("the steps are\n%s\nwant\n%s", strings.Join(prompts, "\n"), strings.Join(want, "\n"))
	}
	for _, want := range []string{
		"redis is there:  redis-cli -u redis://" + s.Addr() + "\n", "1800000   [Enter] \n    ms    A      B      redis\n",
		"      → OK\n          ║      │        │    A believes", "a TTL goes by (by hand: PEXPIRE)",
		"[Enter] \n    ms    A      B      C      redis\n", "\n✗ VIOLATED  one holder at a time: ", "\nThe fix: ", "\nNext: lesson ",
	} {
		if !strings.Contains(st.shown, want) {
			t.Errorf("there is no %q in\n%s", want, st.shown)
		}
	}
	wantSwept(t, s)
}

// TestLessonPredict: the reader says what will come, hears whether that was right, and how often it was.
func TestLessonPredict(t *testing.T) {
	predicts := func(answers string, args ...string) string {
		cmd := clitest.Command(t, append([]string{"lesson", "--predict", "--embedded"}, args...)...)
		cmd.Stdin = strings.NewReader(answers)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		return lessonName.ReplaceAllString(string(out), "tea")
	}
	wants := func(out string, parts ...string) {
		t.Helper()
		wantShape(t, strings.ReplaceAll(out, "? \n", "?\n"), 100)
		for rest := out; len(parts) > 0; parts = parts[1:] {
			var found bool
			if _, rest, found = strings.Cut(rest, parts[0]); !found {
				t.Fatalf("%q is not there, or not in its place, in\n%s", parts[0], out)
			}
		}
	}
	wants(predicts("OK\nnil\n1\n\n?\nOK\n1\nOK\nB C\n", "8"),
		"redis is there: ", "Say what will come. ?: how", "\nA → redis: SET lock:{tea} token-of-A NX PX 1800000\n  the answer? OK\n    ms", "  ✓ OK\n",
		"A → redis: GET lock:{tea}\n  the answer? nil\n", "  ✗ \"token-of-A\", not nil\n", "  ✓ (integer) 1\n", "B → redis: ", "  the answer? \n", "  – OK\n\n✓ KEPT",
		"Act 2: ", "(by hand: PEXPIRE)\nB → redis: ", "  the answer? ?\n  OK, or nil: the key was there; or else", "  the answer? OK\n", "C → redis: ",
		"  the answer? OK\n  who believes then that it holds the lock? B C\n", "  ✓ OK\n  ✓ B and C believe that\n\n✗ VIOLATED",
		"The fix: ", "\n6 of 8 answers right.\nRead: docs/learn/evolution.md#8; 3.13, 4.4 of docs/learn/articles.md. Done\nright: luascript/release.lua. "+
			"Exercise: make exercise N=6 (Look, then delete).\nNext: lesson 9")
	wants(predicts("OK\nq\n", "8", "9"), "✓ OK\n", "The lesson ends here, as you said.\n1 of 1 answers right.\n")
	wants(predicts(strings.Repeat("\n", 40), "8", "9"), "\n0 of 8 answers right.\n", "LESSON 9", "\n0 of 15 answers right.\n")
}

// TestLessonStepEnds: the reader ends it with a word, with the end of the input, or with
// Ctrl-C, and nothing is left.
func TestLessonStepEnds(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	for name, c := range map[string]struct {
		end  func(*stepped)
		code int
		word string
	}{
		"word":   {func(st *stepped) { st.enter(" Q ") }, 0, "The lesson ends here, as you said.\n"},
		"input":  {func(st *stepped) { st.in.Close() }, 0, "The lesson ends here, as the input does.\n"},
		"signal": {func(st *stepped) { st.Process.Signal(syscall.SIGINT) }, 130, "lab: interrupted\n"},
	} {
		st := steps(t, s, "8", "lua")
		st.until()
		st.enter("")
		if p := st.until(); !strings.HasPrefix(p, "A → redis: GET ") {
			t.Errorf("%s: the second prompt is %q", name, p)
		}
		c.end(st)
		st.until()
		st.Wait()
		if code := st.ProcessState.ExitCode(); code != c.code || !strings.HasSuffix(st.shown+st.errs.String(), "\n"+c.word) {
			t.Errorf("%s: exit %d, want %d, and %q at the end of\n%s%s", name, code, c.code, c.word, st.shown, st.errs.String())
		}
		if strings.Contains(st.shown, "LESSON 9") || strings.Contains(st.shown, "  → \"token") {
			t.Errorf("%s: it goes on:\n%s", name, st.shown)
		}
		wantSwept(t, s)
	}
}

// TestLessonNotGiven: of all lessons, those that can be are given, and it is said which were not, and why.
func TestLessonNotGiven(t *testing.T) {
	farm, err := redistest.Open(t.Context(), redistest.Want{Kind: redistest.Embedded})
	if err != nil {
		t.Fatal(err)
	}
	defer farm.Close()
	one, err := lessons.Find("setnx")
	if err != nil {
		t.Fatal(err)
	}
	breaks := lessons.Lesson{Number: 99, Name: "breaks", Title: "It breaks", Own: true, Acts: []lessons.Act{{Title: "it does"}}}
	var out bytes.Buffer
	s := &schooling{servers: servers{embedded: true}, all: true, chosen: []lessons.Lesson{breaks, one}}
	b := &board{w: &out, look: look{width: 80}, several: true}
	school := lessons.Open(farm)
	school.Watch = b
	results, err := s.give(t.Context(), school, b)
	words := strings.Join(strings.Fields(out.String()), " ")
	if err != nil || len(results) != 1 || !strings.Contains(words, "LESSON 99 It breaks ? not given: lesson 99 breaks its servers") ||
		!strings.Contains(words, "LESSON 1 ") || !strings.HasSuffix(words, "1 of 2 lessons were given, and those that were not say why. Without --embedded "+
		"such servers are started, where there is Docker or a redis-server.") {
		t.Errorf("%d results, %v, and\n%s", len(results), err, out.String())
	}
	wantShape(t, out.String(), 80)
	if err := school.Close(); err != nil {
		t.Error(err)
	}
}
