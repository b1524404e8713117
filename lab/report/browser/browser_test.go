// Package browser looks at reports as a reader does: in a browser, on a phone and on a desk,
// by day and by night, and on paper.
package browser

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/lockstrategies/locks/lab/report"
	"github.com/lockstrategies/locks/lab/report/sample"
)

//go:embed measure.js
var measure string

var (
	pictures = flag.String("pictures", "", "keep pictures of the pages in this `folder`")
	picture  = flag.String("picture", "", "write the picture of the published page's first screen to this `file`")
	// published is the project's own run.
	published = flag.String("page", "../../../docs/learn/report.html", "the published page is this `file`")
)

// TestPages: both the sample, which has one of everything, and the page that is published.
func TestPages(t *testing.T) {
	browser := start(t)
	var page strings.Builder
	if err := report.Write(&page, sample.Report()); err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{"sample": page.String()}
	own, err := os.ReadFile(*published)
	switch {
	case errors.Is(err, os.ErrNotExist):
		t.Logf("there is no %s to look at: make report makes it", *published)
	case err != nil:
		t.Fatal(err)
	default:
		pages["published"] = string(own)
	}
	for name, html := range pages {
		for _, width := range []int64{320, 400, 768, 1400} {
			for _, scheme := range []string{"light", "dark"} {
				t.Run(fmt.Sprintf("%s/%d/%s", name, width, scheme), func(t *testing.T) {
					look(t, browser, html, name, width, scheme)
				})
			}
		}
	}
}

// start skips where there is no browser. One that is there must do.
func start(t *testing.T) context.Context {
	t.Helper()
	found := ""
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell", "chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			found = path
			break
		}
	}
	if found == "" {
		t.Skip("no Chromium here, so nobody has looked at the page: install chromium, or name one in CHROMIUM")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(found), chromedp.WSURLReadTimeout(time.Minute))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it does not start otherwise
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("%s does not start: %v", found, err)
	}
	return ctx
}

// seen is what measure.js finds.
type seen struct {
	Scheme    string   `json:"scheme"`
	Overflow  []string `json:"overflow"`
	Small     []string `json:"small"`
	Nameless  []string `json:"nameless"`
	Pale      []string `json:"pale"`
	Headings  []string `json:"headings"`
	Broken    []string `json:"broken"`
	Twice     []string `json:"twice"`
	Scripts   int      `json:"scripts"`
	Steps     int      `json:"steps"`
	Unaligned []string `json:"unaligned"`
}

func look(t *testing.T, browser context.Context, html, name string, width int64, scheme string) {
	ctx, cancel := chromedp.NewContext(browser)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var requests, complaints []string
	err := chromedp.Listen(ctx, func(e any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := e.(type) {
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, "data:") {
				requests = append(requests, e.Request.URL)
			}
		case *log.EventEntryAdded:
			complaints = append(complaints, e.Entry.Text)
		case *runtime.EventExceptionThrown:
			complaints = append(complaints, e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			complaints = append(complaints, fmt.Sprint(e.Type))
		case *page.EventJavascriptDialogOpening:
			complaints = append(complaints, "a dialog opened: "+e.Message)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write([]byte(html))
	}))
	defer server.Close()
	_, e1 := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	_, e2 := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	_, e3 := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	size := []chromedp.EmulateViewportOption{}
	if width < 700 {
		size = append(size, chromedp.EmulateMobile, chromedp.EmulatePortrait)
	}
	e4 := chromedp.Do(ctx, chromedp.EmulateViewport(width, 900, size...), chromedp.Navigate(server.URL+"/"))
	if err := errors.Join(e1, e2, e3, e4); err != nil {
		t.Fatal(err)
	}
	var screen, paper []byte
	if *pictures != "" { // before all that is folded is opened
		if screen, err = chromedp.Run(ctx, chromedp.FullScreenshot(100)); err == nil && width == 1400 && scheme == "light" {
			paper, err = chromedp.Run(ctx, chromedp.PrintToPDF(chromedp.PDFPreferCSSPageSize()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := chromedp.Run(ctx, chromedp.Evaluate[seen](measure))
	if err != nil {
		t.Fatal(err)
	}
	keep(t, fmt.Sprintf("%s-%d-%s.png", name, width, scheme), screen)
	keep(t, name+".pdf", paper)
	if s.Scheme != scheme {
		t.Errorf("the page is %s, want %s: the test has lost its sight", s.Scheme, scheme)
	}
	if s.Steps == 0 {
		t.Error("there is no diagram: the test has lost its sight")
	}
	for what, found := range map[string][]string{
		"wider than the page":                        s.Overflow,
		"text that is too small":                     s.Small,
		"pictures without a name":                    s.Nameless,
		"too little contrast":                        s.Pale,
		"headings out of order":                      s.Headings,
		"links to nowhere":                           s.Broken,
		"identifiers given twice":                    s.Twice,
		"strips that are not as high as their words": s.Unaligned,
		"words of the browser":                       complaints,
	} {
		if len(found) > 0 {
			t.Errorf("%s: %d, as\n%s", what, len(found), strings.Join(found[:min(8, len(found))], "\n"))
		}
	}
	if s.Scripts > 0 {
		t.Errorf("the page has %d scripts, want none", s.Scripts)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(requests) != 1 {
		t.Errorf("requests %v, want the page alone", requests)
	}
}

// TestPicture: a first screen of 1000 by 1000 has the numbers and all the advice. With
// -picture it is written, for the README.
func TestPicture(t *testing.T) {
	own, err := os.ReadFile(*published)
	if err != nil {
		t.Skip(err)
	}
	ctx, cancel := chromedp.NewContext(start(t))
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(own)
	}))
	defer server.Close()
	const side = 1000
	_, e1 := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}})
	e2 := chromedp.Do(ctx, chromedp.EmulateViewport(side, side), chromedp.Navigate(server.URL+"/"))
	end, e3 := chromedp.Run(ctx, chromedp.Evaluate[float64](`document.querySelector(".failures")?.getBoundingClientRect().bottom ?? 0`))
	screen, e4 := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err := errors.Join(e1, e2, e3, e4); err != nil {
		t.Fatal(err)
	}
	if end > side {
		t.Errorf("the advice ends at %.0f px, want it on the first screen of %d", end, side)
	}
	if *picture != "" {
		if err := os.WriteFile(*picture, screen, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func keep(t *testing.T, name string, what []byte) {
	t.Helper()
	if *pictures == "" || len(what) == 0 {
		return
	}
	if err := os.WriteFile(filepath.Join(*pictures, name), what, 0o644); err != nil {
		t.Fatal(err)
	}
}
