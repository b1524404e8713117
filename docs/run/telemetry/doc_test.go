package telemetry

// That the log and the code in docs/run/telemetry.md, the alerts and the dashboard are what the story and the sources give.

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"go.yaml.in/yaml/v2"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/quotes"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

const page = "../telemetry.md"

// TestOutput holds the log in docs/run/telemetry.md to what the story leaves. Tokens are random,
// so only which is which has to be the same.
func TestOutput(t *testing.T) {
	got := story(t).log
	text, err := os.ReadFile(page)
	redistest.Must(t, err)
	const begin = "<!-- output: log -->\n```\n"
	_, rest, ok := strings.Cut(string(text), begin)
	was, _, ended := strings.Cut(rest, "```\n")
	if !ok || !ended {
		t.Fatalf("%s has no %q", page, begin)
	}
	if nameless(was) != nameless(got) {
		t.Errorf("%s has not the log that there is:\n%s", page, got)
	}
}

var tokens = regexp.MustCompile(`…[0-9a-f]{6}`)

// nameless calls tokens by the order in which they come.
func nameless(text string) string {
	seen := map[string]string{}
	return tokens.ReplaceAllStringFunc(text, func(token string) string {
		if seen[token] == "" {
			seen[token] = fmt.Sprintf("token %d", len(seen)+1)
		}
		return seen[token]
	})
}

// TestAlerts: what the rules ask Prometheus for is there, with the labels that they ask for. Each alert has a severity, and
// a section of the runbook.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("alerts.yaml")
	redistest.Must(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Record, Expr, For string
				Labels, Annotations      map[string]string
			}
		}
	}
	redistest.Must(t, yaml.UnmarshalStrict(text, &file))
	runbook, err := os.ReadFile("../runbook.md")
	redistest.Must(t, err)
	var alerts, sections []string
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			alerts = append(alerts, rule.Alert)
			if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) || rule.Annotations["summary"] == "" {
				t.Errorf("%s: want a severity and a summary", rule.Alert)
			}
			const section = "https://github.com/lockstrategies/locks/blob/main/docs/run/runbook.md#"
			if want := section + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want {
				t.Errorf("%s: runbook_url = %q, want %q", rule.Alert, rule.Annotations["runbook_url"], want)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Lock\w+)$`).FindAllStringSubmatch(string(runbook), -1) {
		sections = append(sections, m[1])
	}
	if !slices.Equal(sections, alerts) {
		t.Errorf("runbook.md has the sections\n%q, want one for each alert:\n%q", sections, alerts)
	}
	told, asked := story(t).metrics, 0
	for _, rule := range file.Groups[0].Rules {
		asked += checkQuery(t, rule.Alert+rule.Record, rule.Expr, told)
		if all, narrow := len(series.FindAllString(rule.Expr, -1)), strings.Count(rule.Expr, `{job=~".*"`); all != narrow {
			t.Errorf("%s: %d of %d series have a job to be narrowed", rule.Alert+rule.Record, narrow, all)
		}
	}
	if asked < 10 {
		t.Errorf("%d series are asked for, want 10 or more", asked)
	}
	for _, rule := range file.Groups[1].Rules { // of exporters, which the story has not: their names are checked by hand
		if !regexp.MustCompile(`\b(redis|node)_[a-z_]+\{`).MatchString(rule.Expr) {
			t.Errorf("%s: want a metric of an exporter, of chosen servers", rule.Alert)
		}
	}
}

// TestRules has promtool, if it is there, play when the alerts fire and when they do not.
func TestRules(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skipf("NOT PROVEN: when the alerts fire: %v", err)
	}
	if said, err := exec.CommandContext(t.Context(), tool, "test", "rules", "alerts_test.yaml").CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, said)
	}
}

// TestOutageOfACandidate: while a call with RetryOnError outlasts an outage, what LockServersFail counts rises, and the log
// says it.
func TestOutageOfACandidate(t *testing.T) {
	text, err := os.ReadFile("alerts.yaml")
	redistest.Must(t, err)
	rule := regexp.MustCompile(`alert: LockServersFail\n[^{]*?\((lock_[a-z_]+)\{`).FindSubmatch(text)
	if rule == nil {
		t.Fatal("there is no LockServersFail")
	}
	synctest.Test(t, func(t *testing.T) {
		desk := newDesk(t, "leader", slog.HandlerOptions{})
		var server lockstest.Memory
		server.Intercept(func(context.Context, lockstest.Request, func() error) error { return lockstest.Unsent() })
		locks, err := engine.New(&server, strategy.Options{RetryOnError: true, Observe: desk.observe})
		redistest.Must(t, err)
		c := clerk{t: t}
		counted := func() string {
			_, after, _ := strings.Cut(c.exposition(desk.registry), string(rule[1])+`{error_type="unsent"`)
			series, _, _ := strings.Cut(after, "\n")
			return series
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() {
			_, err := locks.NewLock("leader").Acquire(ctx)
			over <- err
		}()
		time.Sleep(time.Minute)
		before := counted()
		time.Sleep(time.Minute)
		if after := counted(); before == "" || after == before {
			t.Errorf("in a minute of the outage %q became %q, want more", before, after)
		}
		if lines := strings.Count(desk.log.String(), `level=WARN msg="lock servers fail" lock=leader`); lines < 8 || lines > 12 {
			t.Errorf("%d lines in two minutes of an outage, want one every 10 s:\n%s", lines, &desk.log)
		}
		cancel()
		c.want(<-over, context.Canceled)
		c.want(locks.Close(), nil)
	})
}

var series = regexp.MustCompile(`\block_[a-z_]+(?:\{|\[)`)

// checkQuery holds a query to the metrics of the story: they are there, with the labels that it asks for. It returns how
// many series it asks for.
func checkQuery(t *testing.T, whose, query, metrics string) (asked int) {
	t.Helper()
	told := slices.Collect(strings.Lines(metrics))
	query = strings.ReplaceAll(query, `"leader"`, `"luascript"`) // an election is a strategy like others
	for _, a := range regexp.MustCompile(`\b(lock_[a-z_]+)(?:\{([^}]*)\}|\[)`).FindAllStringSubmatch(query, -1) {
		asked++
		name := strings.Replace(a[1], "_bucket", "_count", 1) // the story leaves those out
		found := slices.DeleteFunc(slices.Clone(told), func(l string) bool { return !strings.HasPrefix(l, name+"{") })
		if len(found) == 0 {
			t.Errorf("%s: there is no %s", whose, name)
		}
		for _, label := range regexp.MustCompile(`([a-z_]+)(=~|!=|=)"([^"]*)"`).FindAllStringSubmatch(a[2], -1) {
			if label[1] == "job" { // is Prometheus's own
				continue
			}
			with := label[1] + `="`
			if label[2] == "=" && label[3] != "" { // empty: what has no such label
				with += label[3] + `"`
			}
			if !slices.ContainsFunc(found, func(l string) bool { return strings.Contains(l, with) }) {
				t.Errorf("%s: there is no %s with %s", whose, name, with)
			}
		}
	}
	return asked
}

// TestDashboard: Grafana knows each field of the file, and Prometheus has what each panel asks for. A panel that shows
// what an alert is about names the alert.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("dashboard.json")
	redistest.Must(t, err)
	grafana := cog.NewRuntime()
	grafana.RegisterDataqueryVariant(prometheus.VariantConfig())
	grafana.RegisterPanelcfgVariant(stat.VariantConfig())
	grafana.RegisterPanelcfgVariant(timeseries.VariantConfig())
	// A field that Grafana does not know is an error of the strict reader alone, which leaves out panels.
	//lint:ignore SA1019 each Grafana imports this model, and only the newest the next one
	if err := new(dashboard.Dashboard).UnmarshalJSONStrict(text); err != nil && err.Error() != "" { // an empty list of errors is not nil
		t.Error(err)
	}
	//lint:ignore SA1019 as above
	var board dashboard.Dashboard
	redistest.Must(t, json.Unmarshal(text, &board))
	redistest.Must(t, board.Validate())
	alerts, err := os.ReadFile("alerts.yaml")
	redistest.Must(t, err)
	metrics, seen := story(t).metrics, ""
	for _, p := range board.Panels {
		if len(p.Panel.Targets) == 0 {
			t.Errorf("panel %q shows nothing", *p.Panel.Title)
		}
		for _, target := range p.Panel.Targets {
			query := target.(*prometheus.Dataquery).Expr
			seen += query
			if checkQuery(t, *p.Panel.Title, query, metrics) == 0 {
				t.Errorf("panel %q asks for no metric of locks: %s", *p.Panel.Title, query)
			}
		}
		for _, alert := range regexp.MustCompile(`Lock[A-Z]\w+`).FindAllString(*p.Panel.Description, -1) {
			if !strings.Contains(string(alerts), "alert: "+alert+"\n") {
				t.Errorf("panel %q names alert %s, which there is not", *p.Panel.Title, alert)
			}
		}
	}
	for line := range strings.Lines(metrics) {
		name, ok := strings.CutPrefix(line, "# TYPE ")
		if name, _, _ = strings.Cut(name, " "); ok && !strings.Contains(seen, name) {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// TestDocQuotes holds the code in docs/run/telemetry.md to the sources.
func TestDocQuotes(t *testing.T) {
	if from, err := quotes.Check(page); err != nil || from["telemetry/telemetry.go"] == 0 {
		t.Errorf("the page quotes %v, want telemetry.go: %v", from, err)
	}
}
