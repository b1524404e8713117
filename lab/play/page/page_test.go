package page

// Tests the page in a real browser, by its keyboard: the scenes show what they break, the address carries the play,
// and nothing is wider than the window.

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/lockstrategies/locks/lab/play"
)

var shots = flag.String("shots", "", "write pictures of the page into this `folder`")

// browse opens a browser, and returns the address of the page.
func browse(t *testing.T) (ctx context.Context, url string) {
	t.Helper()
	var found string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil && found == "" {
			found = path
		}
	}
	if found == "" || testing.Short() {
		t.Skip("NOT PROVEN: that the page plays in a browser: there is none (chromium, google-chrome)")
	}
	file := filepath.Join(t.TempDir(), "play.html")
	w, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(found), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return ctx, "file://" + file
}

// does makes a browser do something.
func does(t *testing.T, ctx context.Context, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// says evaluates an expression in the page.
func says[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// waits goes on when it is so in the page.
func waits(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	poll := chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(time.Minute), chromedp.WithPollingInterval(20*time.Millisecond))
	if err := chromedp.Do(ctx, poll); err != nil {
		t.Fatalf("it does not come to this: %s: %v", expression, err)
	}
}

// made waits until the page shows the play after n moves.
func made(t *testing.T, ctx context.Context, n int) {
	t.Helper()
	waits(t, ctx, fmt.Sprintf("state && program.ready && program.sent === %d && state.moves.length === %[1]d && at === %[1]d", n))
}

// tabTo presses the tab key until the element has the focus.
func tabTo(t *testing.T, ctx context.Context, selector string) {
	t.Helper()
	for range 100 {
		does(t, ctx, chromedp.KeyEvent(kb.Tab))
		if says[bool](t, ctx, fmt.Sprintf("document.activeElement.matches(%q)", selector)) {
			return
		}
	}
	t.Fatalf("the tab key does not lead to %s", selector)
}

const alert = `document.getElementById("alert").textContent`

func TestPage(t *testing.T) {
	ctx, url := browse(t)
	does(t, ctx, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(url))
	made(t, ctx, 0)
	for _, s := range play.Scenes() {
		t.Run(s.ID, func(t *testing.T) {
			tabTo(t, ctx, fmt.Sprintf("[data-scene=%s]", s.ID))
			does(t, ctx, chromedp.KeyEvent(kb.Enter))
			made(t, ctx, 0)
			moves := strings.Split(s.Moves, ",")
			for i := range moves {
				if said := says[string](t, ctx, alert); said != "" {
					t.Errorf("after %v it says %q", moves[:i], said)
				}
				does(t, ctx, chromedp.KeyEvent(kb.ArrowRight))
				made(t, ctx, i+1)
			}
			said, diagram := says[string](t, ctx, alert), says[string](t, ctx, "document.getElementById('diagram').textContent")
			want := "Broken promise: " + s.Promise
			if s.Promise == "" {
				want = "The fence stops A's late write"
			}
			if !strings.Contains(said, want) || strings.Contains(said, "Broken promise") != (s.Promise != "") {
				t.Errorf("it says %q, want %q\n%s", said, want, diagram)
			}
			hash := says[string](t, ctx, "location.hash")
			if want := "#" + s.Algorithm + "," + s.Moves; hash != want {
				t.Errorf("the address has %q, want %q", hash, want)
			}
			picture(t, ctx, s.ID)
			if s.ID != "watchdog" {
				return
			}
			// Sent to others it is the same play, also here, where the engine has drawn random times.
			does(t, ctx, chromedp.Navigate("about:blank"), chromedp.Navigate(url+hash))
			made(t, ctx, len(moves))
			if other := says[string](t, ctx, "document.getElementById('diagram').textContent"); other != diagram {
				t.Errorf("sent to others it is\n%s\nit was\n%s", other, diagram)
			}
		})
	}
	for name, c := range map[string]struct {
		hash, algorithm string
		says            []string
	}{
		"no such algorithm": {"setnxgetst,a.try", "luascript", []string{"There is no algorithm “setnxgetst”: this is luascript.", "A believes"}},
		"in capitals":       {"SETNXGETSET,a.try", "setnxgetset", []string{"Move 1 of 1, a.try: A believes"}},
		"no such move":      {"setnxpx,a.try,b.clok+11s,b.try", "setnxpx", []string{"b.clok+11s was not made: ", "Move 3 of 3, b.try: A believes"}},
	} {
		t.Run(name, func(t *testing.T) {
			does(t, ctx, chromedp.Navigate("about:blank"), chromedp.Navigate(url+"#"+c.hash))
			made(t, ctx, strings.Count(c.hash, ","))
			said := says[string](t, ctx, "document.getElementById('status').textContent")
			for _, want := range c.says {
				if !strings.Contains(said, want) {
					t.Errorf("it says %q, want %q", said, want)
				}
			}
			if plays := says[string](t, ctx, "document.getElementById('algorithm').value"); plays != c.algorithm {
				t.Errorf("it plays %s, want %s", plays, c.algorithm)
			}
		})
	}
	t.Run("hand", func(t *testing.T) {
		does(t, ctx, chromedp.Navigate("about:blank"), chromedp.Navigate(url))
		made(t, ctx, 0)
		tabTo(t, ctx, `[data-move="a.step"]`)
		does(t, ctx, chromedp.KeyEvent(kb.Enter))
		made(t, ctx, 1)
		tabTo(t, ctx, `#move`)
		does(t, ctx, chromedp.KeyEvent("a.try b.release"+kb.Enter))
		made(t, ctx, 3)
		if said := says[string](t, ctx, "document.getElementById('status').textContent"); !strings.Contains(said, "B does not hold the lock") {
			t.Errorf("of a move that cannot be made it says %q", said)
		}
		tabTo(t, ctx, `[data-move="m1.pass"]`)
		does(t, ctx, chromedp.KeyEvent(kb.Enter))
		made(t, ctx, 4)
		tabTo(t, ctx, `[data-move="m2.pass"]`)
		does(t, ctx, chromedp.KeyEvent(kb.Enter))
		made(t, ctx, 5)
		if said := says[string](t, ctx, "document.getElementById('status').textContent"); !strings.Contains(said, "A believes that it holds the lock") {
			t.Errorf("by hand: %q", said)
		}
		picture(t, ctx, "hand")
		does(t, ctx, chromedp.KeyEvent(kb.ArrowLeft))
		made(t, ctx, 4)
		if hash := says[string](t, ctx, "location.hash"); hash != "#luascript,@4,a.step,a.try,b.release,m1.pass,m2.pass" {
			t.Errorf("a step back, the address is %q", hash)
		}
	})
}

// picture looks at the page in a small and in a wide window, by day and by night.
func picture(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	for _, width := range []int64{400, 1280} {
		for _, scheme := range []string{"light", "dark"} {
			does(t, ctx, chromedp.EmulateViewport(width, 900), colours(scheme))
			waits(t, ctx, "innerWidth === "+fmt.Sprint(width)+" && program.width === width() && program.ready && program.sent === at") // drawn for this width
			if over := says[int](t, ctx, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
				t.Errorf("at %d it is wider than the window, by %d", width, over)
			}
			if *shots == "" {
				continue
			}
			png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(*shots, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), png, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// colours are what the reader's system prefers.
func colours(scheme string) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, target *chromedp.Target) (none chromedp.Void, err error) {
		_, err = cdp.Call(ctx, target, emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return none, err
	}
}
