// Tests what Close ends, waits for, and refuses.
package lifecycle

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestClose: Close ends what waits for Closing, waits for what is under way, also for a goroutine that
// begins meanwhile, and refuses what is new. A second Close that comes meanwhile waits, too.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New()
		if !g.Enter() || g.Closed() {
			t.Fatal("Enter of an open group = false, want true")
		}
		var late, tooLate bool
		go func() {
			<-g.Closing()
			time.Sleep(time.Second)
			g.Go(func() { time.Sleep(time.Second); late = true })
			g.Leave()
		}()
		start := time.Now()
		second := make(chan time.Duration, 1)
		go func() {
			<-g.Closing()
			if g.Close() {
				t.Error("a Close during the first = true, want false")
			}
			second <- time.Since(start)
		}()
		if !g.Close() {
			t.Error("the first Close = false, want true")
		}
		if took := time.Since(start); took != 2*time.Second || !late {
			t.Errorf("Close took %v, and the late goroutine ran: %v; want 2s, true", took, late)
		}
		if took := <-second; took != 2*time.Second {
			t.Errorf("a Close during the first took %v, want 2s", took)
		}
		if g.Enter() || !g.Closed() || g.Active() != 0 {
			t.Error("after Close something may begin, want nothing")
		}
		g.Go(func() { tooLate = true })
		synctest.Wait()
		if tooLate {
			t.Error("Go ran a goroutine after Close, want none")
		}
		if g.Close() {
			t.Error("the second Close = true, want false")
		}
	})
}
