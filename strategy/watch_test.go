package strategy_test

// Watch: what it yields when the holder changes, the servers fail, and the loop or ctx ends.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// inspections is a Strategy whose Inspect gives one answer after the other, and the last one for ever.
type inspections struct {
	strategy.Strategy
	answers []any // Info or error
	takes   time.Duration
	asked   []time.Time
}

// late is a context whose timer does not run: its deadline passes, and neither Err nor Done tells.
type late struct {
	context.Context
	deadline time.Time
}

func (l late) Deadline() (time.Time, bool) { return l.deadline, true }

func (s *inspections) Inspect(_ context.Context, name string) (strategy.Info, error) {
	s.asked = append(s.asked, time.Now())
	time.Sleep(s.takes)
	answer := s.answers[min(len(s.asked), len(s.answers))-1]
	if err, failed := answer.(error); failed {
		return strategy.Info{}, err
	}
	info := answer.(strategy.Info)
	info.Name = name
	return info, nil
}

func TestWatch(t *testing.T) {
	away := errors.New("away")
	free, held := strategy.Info{}, strategy.Info{Held: true, Token: "a", Owner: "a", Holds: 1, Fence: 7}
	with := func(change func(*strategy.Info)) strategy.Info {
		info := held
		change(&info)
		return info
	}
	for name, tt := range map[string]struct {
		answers []any
		want    []int // which answers are yielded
	}{
		"free, held, free": {[]any{free, free, held, held, free}, []int{0, 2, 4}},
		"another token":    {[]any{held, with(func(i *strategy.Info) { i.Token = "b" })}, []int{0, 1}},
		"another owner":    {[]any{held, with(func(i *strategy.Info) { i.Owner = "b" })}, []int{0, 1}},
		"another hold":     {[]any{held, with(func(i *strategy.Info) { i.Holds++ })}, []int{0, 1}},
		"another fence":    {[]any{held, with(func(i *strategy.Info) { i.Fence++ })}, []int{0, 1}},
		"no change":        {[]any{held, with(func(i *strategy.Info) { i.TTL, i.Queue = time.Second, []string{"b"} })}, []int{0}},
		"away at first":    {[]any{away, away, free}, []int{0, 2}},
		"away between":     {[]any{held, away, away, held, held}, []int{0, 1, 3}},
		"away for ever":    {[]any{held, away}, []int{0, 1}},
		"one of several": {[]any{
			with(func(i *strategy.Info) { i.Holds = 2 }), with(func(i *strategy.Info) { i.Holds, i.Token, i.Owner = 2, "b", "b" }),
		}, []int{0}},
		"released while away": {[]any{held, away, free}, []int{0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
				defer cancel()
				s, began := &inspections{answers: tt.answers}, time.Now()
				var got []int
				for info, err := range strategy.Watch(ctx, s, "tea", time.Second) {
					i := len(s.asked) - 1
					got = append(got, i)
					if want, failed := tt.answers[i].(error); failed != (err != nil) || failed && err != want {
						t.Errorf("answer %d is yielded with %v", i, err)
					} else if !failed && info.Name != "tea" {
						t.Errorf("answer %d is of %q", i, info.Name)
					}
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("it yields answers %v, want %v", got, tt.want)
				}
				if len(s.asked) != 11 || time.Since(began) != 10*time.Second+time.Millisecond {
					t.Errorf("it asked %d times in %v, want 11 times until its context ended", len(s.asked), time.Since(began))
				}
			})
		})
	}
}

// Watch ends with the loop, also after an error. A context that ends while Inspect asks is not yielded as an error.
func TestWatchEnds(t *testing.T) {
	for name, answer := range map[string]any{"after an answer": strategy.Info{}, "after an error": errors.New("away")} {
		t.Run(name, func(t *testing.T) {
			s := &inspections{answers: []any{answer}}
			for range strategy.Watch(t.Context(), s, "tea", time.Hour) {
				break
			}
			if len(s.asked) != 1 {
				t.Errorf("it asked %d times", len(s.asked))
			}
		})
	}
	t.Run("while it asks", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		for info, err := range strategy.Watch(ctx, cancels{cancel: cancel}, "tea", time.Hour) {
			t.Errorf("it yields %v, %v", info, err)
		}
	})
	t.Run("no timer tells of the deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &inspections{answers: []any{strategy.Info{}}, takes: time.Second}
			runs, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			ctx := late{runs, time.Now().Add(time.Second)}
			for range 2 {
				for info, err := range strategy.Watch(ctx, s, "tea", time.Minute) {
					t.Errorf("it yields %v, %v", info, err)
				}
			}
			if len(s.asked) != 1 {
				t.Errorf("it asked %d times, want once: the deadline came meanwhile", len(s.asked))
			}
		})
	})
	t.Run("no interval", func(t *testing.T) {
		var got []string
		for _, err := range strategy.Watch(t.Context(), &inspections{}, "tea", 0) {
			got = append(got, fmt.Sprint(err))
		}
		if want := []string{"locks: Watch asks every 0s: allowed is more than 0"}; !slices.Equal(got, want) {
			t.Errorf("it yields %q, want %q", got, want)
		}
	})
}

// cancels is a Strategy that is asked when the caller gives up.
type cancels struct {
	strategy.Strategy
	cancel context.CancelFunc
}

func (s cancels) Inspect(ctx context.Context, _ string) (strategy.Info, error) {
	s.cancel()
	return strategy.Info{}, ctx.Err()
}
