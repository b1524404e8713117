// Tests how the signals of a process are handed over from the goroutine that ends the context to the
// command that wants them. The signals here are sent by the tests, so the order is forced.
package cli

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
)

// A process is one that has signals and a context, and whose goroutine ends that.
type process struct {
	*signals
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func newProcess() process {
	s := &signals{c: make(chan os.Signal, 1), taken: make(chan struct{}), over: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), signalsKey{}, s))
	return process{s, ctx, cancel}
}

func interrupted(err error) bool {
	var by *Interrupted
	return errors.As(err, &by) && by.Signal == syscall.SIGTERM
}

func TestSignalBeforeTheHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess()
		go p.watch(p.cancel)
		p.c <- syscall.SIGTERM
		synctest.Wait()
		if c, err := TakeSignals(p.ctx); c != nil || !interrupted(err) {
			t.Errorf("TakeSignals = %v, %v, want the signal that ended the context", c, err)
		}
	})
}

// TestSignalDuringTheHandOver: the goroutine has read the signal, and has not ended the context yet.
func TestSignalDuringTheHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess()
		read, goOn := make(chan struct{}), make(chan struct{})
		go p.watch(func(why error) {
			close(read)
			<-goOn
			p.cancel(why)
		})
		p.c <- syscall.SIGTERM
		<-read
		taken := make(chan error)
		go func() {
			_, err := TakeSignals(p.ctx)
			taken <- err
		}()
		synctest.Wait()
		select {
		case err := <-taken:
			t.Errorf("TakeSignals = %v before the goroutine has ended the context: the signal is lost", err)
			close(goOn)
		default:
			close(goOn)
			if err := <-taken; !interrupted(err) {
				t.Errorf("TakeSignals = %v, want the signal that ended the context", err)
			}
		}
	})
}

// TestSignalAtTheHandOver: either side may read the signal; exactly one does.
func TestSignalAtTheHandOver(t *testing.T) {
	for range 100 {
		p := newProcess()
		p.c <- syscall.SIGTERM
		go p.watch(p.cancel)
		c, err := TakeSignals(p.ctx)
		if err == nil && len(c) != 1 || err != nil && (!interrupted(err) || len(p.c) != 0) {
			t.Fatalf("TakeSignals = %d signals, %v, want the signal in one of the two", len(c), err)
		}
	}
}

func TestSignalAfterTheHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess()
		go p.watch(p.cancel)
		c, err := TakeSignals(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		p.c <- syscall.SIGTERM
		synctest.Wait()
		if len(c) != 1 || p.ctx.Err() != nil {
			t.Errorf("%d signals for the caller, and the context has ended: %v; want one, and that it has not", len(c), p.ctx.Err())
		}
	})
}
