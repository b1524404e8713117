// Tests of docs/learn/articles.md. Each point of the articles has a place that exists. Each session with redis-cli runs as
// printed. The suite convicts each line that an article gets wrong, and the right ones pass the same trials, in fake time.
package articles

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	redigo "github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile("../" + page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	point  = regexp.MustCompile(`(?m)^\| (\d)\.(\d+) \|([^|\n]+)\|([^|\n]+)\|([^|\n]+)\|$`)
	place  = regexp.MustCompile("`([^`]+)`" + `|\]\([^)]+\)`)
	lesson = regexp.MustCompile(`\[(\d+)\]\(evolution\.md#(\d+)\)`)
)

// TestPlaces: the points of each article are numbered, and each has a place: a property of the suite, what go doc shows, or
// a link. (Of links internal/layout checks that they lead somewhere.)
func TestPlaces(t *testing.T) {
	t.Parallel()
	properties := conformance.Properties()
	text, last, docs := read(t, "articles.md"), map[string]int{}, map[string]string{}
	points := point.FindAllStringSubmatch(text, -1)
	for _, m := range points {
		name, places := m[1]+"."+m[2], place.FindAllStringSubmatch(m[4], -1)
		if last[m[1]]++; fmt.Sprint(last[m[1]]) != m[2] {
			t.Errorf("%s is number %d of its article", name, last[m[1]])
		}
		if len(places) == 0 {
			t.Errorf("%s has no place", name)
		}
		for _, p := range places {
			if symbol, ok := strings.CutPrefix(p[1], "go doc "); ok {
				docs[symbol] = name
			} else if p[1] != "" && !slices.ContainsFunc(properties, func(q conformance.Property) bool { return q.Name == p[1] }) {
				t.Errorf("%s: the suite has no property %s", name, p[1])
			}
		}
	}
	if len(last) != 5 || len(points) < 79 || len(docs) == 0 {
		t.Errorf("%d points of %d articles, %d with go doc: the test has lost its sight", len(points), len(last), len(docs))
	}
	if said := fmt.Sprintf("The %d points", len(points)); !strings.Contains(text, said) {
		t.Errorf("the page does not say: %s", said)
	}
	for _, m := range lesson.FindAllStringSubmatch(text, -1) {
		if m[1] != m[2] {
			t.Errorf("%s leads to lesson %s", m[0], m[2])
		}
	}
	for symbol, name := range docs {
		cmd := exec.Command("go", "doc", "./"+symbol)
		cmd.Dir = "../../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: go doc %s: %v: %s", name, symbol, err, out)
		}
	}
}

var (
	session = regexp.MustCompile("(?ms)^```redis\n(.*?)^```$")
	word    = regexp.MustCompile(`"[^"]*"|\S+`)
)

// TestSessions sends what the page prints after "> ", and wants the lines below it, as redis-cli shows them. A command that
// only looks may have to wait for the server.
func TestSessions(t *testing.T) {
	t.Parallel()
	if redistest.ForTests(t).Kind() == redistest.Embedded {
		t.Skip("an embedded server deletes nothing by itself: the sessions are not proven")
	}
	sessions := session.FindAllStringSubmatch(read(t, "articles.md"), -1)
	if len(sessions) < 3 {
		t.Fatalf("%d sessions: the test has lost its sight", len(sessions))
	}
	for _, s := range sessions {
		server := redistest.Own(t, redistest.Config{Args: []string{"--enable-debug-command", "yes"}})
		conn := server.Pool().Get()
		t.Cleanup(func() { conn.Close() })
		for _, part := range strings.Split(s[1], "> ")[1:] {
			command, reply, _ := strings.Cut(part, "\n")
			command, _, _ = strings.Cut(command, "  #")
			var words []any
			for _, w := range word.FindAllString(command, -1) {
				words = append(words, strings.Trim(w, `"`))
			}
			agrees := func() bool {
				got := shown(conn.Do(words[0].(string), words[1:]...))
				return strings.Contains("\n"+got, "\n"+strings.TrimSpace(reply))
			}
			if slices.Contains([]any{"DBSIZE", "INFO"}, words[0]) {
				verdict.Eventually(t, command+" says "+reply, agrees)
			} else if !agrees() {
				t.Fatalf("%s: want %s", command, reply)
			}
		}
	}
}

// shown is a reply as redis-cli shows it.
func shown(reply any, err error) string {
	var said redigo.Error
	if errors.As(err, &said) {
		return "(error) " + string(said)
	}
	switch reply := reply.(type) {
	case nil:
		return "(nil)"
	case int64:
		return fmt.Sprintf("(integer) %d", reply)
	case []byte:
		if !bytes.Contains(reply, []byte("\n")) {
			return strconv.Quote(string(reply))
		}
		return string(reply)
	default:
		return fmt.Sprintf("%s", reply)
	}
}

// judge holds a trial of one property.
func judge(t *testing.T, property string, l lines) (result conformance.Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := &redis{}
		gated := func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
			return engine.New(stampLock{redis: server, lines: l, gate: g}, o)
		}
		subject := conformance.Subject{
			Name: "stamp",
			Open: func(o strategy.Options) (strategy.Strategy, error) {
				return gated(o, func(_ string, send func()) { send() })
			},
			OpenGated: gated,
		}
		for _, p := range conformance.Properties() {
			if p.Name == property {
				result = conformance.Check(t.Context(), subject, p)
			}
		}
	})
	return result
}

func TestMistakes(t *testing.T) {
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			if r := judge(t, m.property, right); r.Status != conformance.Kept {
				t.Errorf("the right lines: %v", r)
			}
			wrong := right
			m.make(&wrong)
			if r := judge(t, m.property, wrong); r.Status != conformance.Broken {
				t.Errorf("the wrong line: %v", r)
			}
		})
	}
}

// TestDoc: the page has a row for each mistake, with the property that shows it.
func TestDoc(t *testing.T) {
	t.Parallel()
	text := read(t, "articles.md")
	for _, m := range mistakes {
		if !regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(m.name) + ` \|.*\(` + "`" + m.property + "`" + `\) \|$`).MatchString(text) {
			t.Errorf("docs/learn/articles.md has no row for %q with %s", m.name, m.property)
		}
	}
}

// TestChinese: the page in Chinese links each lesson, and has all the Chinese terms of the glossary; its numbers are of points.
func TestChinese(t *testing.T) {
	t.Parallel()
	chinese, glossary := read(t, "zh.md"), read(t, "glossary.md")
	linked := lesson.FindAllStringSubmatch(chinese, -1)
	lessons := len(regexp.MustCompile(`<a id="\d+">`).FindAllString(read(t, "evolution.md"), -1)) // "play" is an anchor, too
	for n := 1; n <= lessons; n++ {
		if !slices.ContainsFunc(linked, func(m []string) bool { return m[1] == fmt.Sprint(n) && m[2] == m[1] }) {
			t.Errorf("zh.md has no link to lesson %d", n)
		}
	}
	terms := regexp.MustCompile(`(?m)^\| [^|]+ \| ([^|]*\p{Han}[^|]*) \|`).FindAllStringSubmatch(glossary, -1)
	for _, m := range terms {
		for _, term := range strings.Split(m[1], "、") {
			if !strings.Contains(chinese, term) {
				t.Errorf("zh.md lacks %s", term)
			}
		}
	}
	if len(terms) < 60 {
		t.Errorf("the glossary has %d terms: the test has lost its sight", len(terms))
	}
	points := point.FindAllStringSubmatch(read(t, "articles.md"), -1)
	for _, m := range regexp.MustCompile(`（([1-5]\.\d+(?:、[1-5]\.\d+)*)）`).FindAllStringSubmatch(chinese, -1) {
		for _, n := range strings.Split(m[1], "、") {
			if !slices.ContainsFunc(points, func(p []string) bool { return p[1]+"."+p[2] == n }) {
				t.Errorf("articles.md has no point %s", n)
			}
		}
	}
}
