package history

// Tests how histories are recorded, written and read again, also those of a process that was killed.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

func TestNow(t *testing.T) {
	t.Parallel()
	before := Now()
	deadline := time.Now().Add(time.Minute)
	after := Now()
	if at := At(deadline); at < before+time.Minute || at > after+time.Minute {
		t.Errorf("At(in a minute) = %v, want %v … %v", at, before+time.Minute, after+time.Minute)
	}
}

func TestResultOf(t *testing.T) {
	t.Parallel()
	server := func(kind error) error { return &strategy.ServerError{Node: "n", Kind: kind} }
	quorum := func(held *strategy.HeldError, errs ...error) error {
		e := &strategy.QuorumError{Need: 3, Held: held}
		for _, err := range errs {
			e.Nodes = append(e.Nodes, strategy.NodeAnswer{Node: "n", Err: err})
		}
		return e
	}
	held := &strategy.HeldError{}
	for _, c := range []struct {
		err  error
		want Result
	}{
		{nil, OK},
		{held, Held},
		{fmt.Errorf("%w; gave up: %w", held, context.DeadlineExceeded), Held},
		{quorum(held, server(strategy.ErrUnknown), held), Held},
		{quorum(nil, held, held, server(strategy.ErrUnsent)), Unsent},
		{quorum(nil, server(strategy.ErrUnsent), server(strategy.ErrRefused), server(strategy.ErrUnknown)), Unknown},
		{quorum(nil, server(strategy.ErrUnsent), server(strategy.ErrRefused)), Refused},
		{quorum(nil, held, held), Unknown},
		{&strategy.LostError{Lapsed: true, Err: server(strategy.ErrUnknown)}, Lost},
		{server(strategy.ErrUnknown), Unknown},
		{&strategy.ServerError{Kind: strategy.ErrUnknown, Err: context.Canceled}, Unknown},
		{server(strategy.ErrRefused), Refused},
		{strategy.ErrUnsupported, Refused},
		{server(strategy.ErrUnsent), Unsent},
		{strategy.ErrReleased, Released},
		{strategy.ErrClosed, Closed},
		{context.Canceled, Unsent},
		{errors.New("anything else"), Unknown},
	} {
		if got := ResultOf(c.err); got != c.want {
			t.Errorf("ResultOf(%v) = %s, want %s", c.err, got, c.want)
		}
	}
}

func TestEnded(t *testing.T) {
	t.Parallel()
	for _, err := range []error{context.Canceled, context.DeadlineExceeded} {
		if op := (Op{Kind: KindAcquire}).Ended(err); !op.GaveUp || op.Note != err.Error() {
			t.Errorf("an acquire that ends with %v is %+v, want that it gave up", err, op)
		}
	}
	acquire, renew := Op{Kind: KindAcquire}.Ended(strategy.ErrUnknown), Op{Kind: KindRenew}.Ended(context.Canceled)
	if acquire.GaveUp || renew.GaveUp {
		t.Errorf("%+v and %+v gave up, want neither", acquire, renew)
	}
}

func TestWriteAndRead(t *testing.T) {
	t.Parallel()
	ops := []Op{
		{Client: "A", Kind: KindAcquire, Key: "k\n", Hold: "h", Start: 1, End: 3, Result: OK, Deadline: 9, TTL: 10, Fence: 1 << 52, Owner: "o"},
		{Kind: KindFault, Note: "freeze server 1", Start: 2, End: Forever},
		{Client: "B", Kind: KindWrite, Key: "k", Hold: "h", Start: 4, End: 5, Result: Refused, Value: "é", Note: "stale"},
	}
	var file bytes.Buffer
	if err := Write(&file, ops); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&file)
	if err != nil || !reflect.DeepEqual(got, ops) {
		t.Errorf("Read = %+v, %v, want %+v", got, err, ops)
	}
}

func TestReadOfTheKilled(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	r := NewRecorder(&file)
	op := r.Begin(Op{Client: "A", Kind: KindAcquire, Key: "k"})
	op.Hold, op.Result, op.Deadline = "h", OK, Forever
	r.End(op)
	r.Begin(Op{Client: "A", Kind: KindRelease, Key: "k", Hold: "h"})
	r.Begin(Op{Client: "A", Kind: KindFault, Note: "cut"})
	r.Begin(Op{Client: "B", Kind: KindAcquire, Key: "k"})
	file.Truncate(file.Len() - 2)
	ops, err := Read(&file)
	if err != nil || r.Err() != nil {
		t.Fatal(err, r.Err())
	}
	var got []string
	for _, op := range ops {
		got = append(got, fmt.Sprint(op.Kind, " ", op.Result, " ", op.End == Forever))
	}
	if got := strings.Join(got, ", "); got != "acquire ok false, release unknown true, fault  true" {
		t.Errorf("read was %s", got)
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, want string }{
		{`{"client":"A"`, "line 1"},
		{`{"client":"A","kind":"steal","key":"k","result":"ok"}`, "allowed are"},
		{`{"client":"A","kind":"acquire","key":"k","result":"fine"}`, "allowed are"},
		{`{"client":"A","kind":"acquire","key":"k","result":"ok","deadline":9}`, "no hold"},
		{`{"client":"A","kind":"acquire","key":"k","hold":"h","result":"ok"}`, "without a deadline"},
		{`{"client":"A","kind":"renew","key":"k","result":"lost"}`, "no hold"},
		{`{"client":"A","kind":"lost","key":"k","hold":"h","result":"held"}`, "which has none"},
		{`{"kind":"read","key":"k","result":"ok"}`, "no client"},
		{`{"client":"A","kind":"read","result":"ok"}`, "no key"},
		{`{"client":"A","kind":"read","key":"k","result":"ok","start":2,"end":1}`, "before its start"},
	} {
		if _, err := Read(strings.NewReader(c.line + "\n")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Read(%s) = %v, want %q in it", c.line, err, c.want)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestRecorder(t *testing.T) {
	t.Parallel()
	r := NewRecorder(nil)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				r.End(r.Begin(Op{Client: fmt.Sprint(i), Kind: KindFault}))
			}
		})
	}
	all.Wait()
	ids := map[uint64]bool{}
	last := Op{}
	for _, op := range r.Ops() {
		if op.Start < last.Start || op.End < op.Start || ids[op.ID] {
			t.Fatalf("%+v after %+v", op, last)
		}
		ids[op.ID], last = true, op
	}
	if len(ids) != 800 {
		t.Errorf("%d operations, want 800", len(ids))
	}
	r = NewRecorder(fullDisk{})
	r.Add(Op{})
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("Err() = %v, want what was wrong", err)
	}
}
