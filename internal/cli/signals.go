package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// signals is the one channel by which this process hears of signals. At first a goroutine reads it,
// and ends the context of the work; after [TakeSignals] the caller of that reads it. So each signal
// has one reader at any time, and none is lost between two.
type signals struct {
	c     chan os.Signal
	taken chan struct{} // closed by TakeSignals
	over  chan struct{} // closed when the goroutine has stopped reading
}

type signalsKey struct{}

// withSignals returns a context that the first signal ends.
func withSignals(parent context.Context) context.Context {
	// So many signals may come before the command reads them.
	s := &signals{c: make(chan os.Signal, 64), taken: make(chan struct{}), over: make(chan struct{})}
	s.add(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, signalsKey{}, s))
	go s.watch(cancel)
	return ctx
}

// add leaves out what this process was started to ignore, by nohup, say.
func (s *signals) add(more ...os.Signal) {
	for _, m := range more {
		if !signal.Ignored(m) {
			signal.Notify(s.c, m)
		}
	}
}

func (s *signals) watch(cancel context.CancelCauseFunc) {
	defer close(s.over)
	select {
	case sig := <-s.c:
		signal.Stop(s.c) // the next one ends the process at once
		cancel(&Interrupted{sig.(syscall.Signal)})
	case <-s.taken:
	}
}

// TakeSignals gives the signals of the process to the caller, and adds more kinds of them. If a
// signal has ended ctx, it returns that as an error. Otherwise no signal ends ctx any more: each
// that was not read yet, and each that is still to come, is in the channel. A program that
// [Main] runs calls it at most once.
func TakeSignals(ctx context.Context, more ...os.Signal) (<-chan os.Signal, error) {
	s, ok := ctx.Value(signalsKey{}).(*signals)
	if ok {
		close(s.taken)
		<-s.over
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !ok {
		panic("cli: TakeSignals without Main")
	}
	s.add(more...)
	return s.c, nil
}

// Interrupted is the cause of a context that a signal ended.
type Interrupted struct{ Signal syscall.Signal }

func (i *Interrupted) Error() string {
	if i.Signal == syscall.SIGINT {
		return "interrupted"
	}
	return "ended by signal: " + i.Signal.String()
}
