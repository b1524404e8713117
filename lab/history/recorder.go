package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
)

// A Recorder collects the operations of one process. It is safe for concurrent use.
type Recorder struct {
	mu   sync.Mutex
	w    io.Writer
	err  error
	last uint64
	ops  []Op

	begun map[uint64]Op // by ID, until they end
	cut   bool
}

// NewRecorder returns a Recorder. If w is not nil it gets a line of JSON for each
// operation when it begins, and one when it ends, each in one Write: for a file opened
// with O_APPEND, which outlives its process. [Read] reads it.
func NewRecorder(w io.Writer) *Recorder { return &Recorder{w: w, begun: map[uint64]Op{}} }

// Begin is called before an operation is sent, with what is known of it: Client, Kind,
// Key, … It gives it its Start and ID; the caller completes what it returns, and passes
// that to [Recorder.End].
func (r *Recorder) Begin(op Op) Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	op.ID, op.Start, op.End, op.Result = r.last, Now(), Forever, ""
	if r.w != nil {
		r.write(op)
		op.Start = Now() // not what writing took, which is not the operation's time
	}
	r.begun[op.ID] = op
	return op
}

// End records an operation that [Recorder.Begin] began, and gives it its End.
func (r *Recorder) End(op Op) Op {
	op.End = Now() // before the lock: others must not make it seem longer
	r.Add(op)
	return op
}

// Add records an operation that is complete, its times included.
func (r *Recorder) Add(op Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		return
	}
	delete(r.begun, op.ID)
	r.ops = append(r.ops, op)
	if r.w != nil {
		r.write(op)
	}
}

func (r *Recorder) write(op Op) {
	line, err := json.Marshal(op)
	if err == nil {
		_, err = r.w.Write(append(line, '\n'))
	}
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("history: a line could not be written: %w", err)
	}
}

// Ops returns what has ended so far, by Start.
func (r *Recorder) Ops() []Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Merge(r.ops)
}

// Cut ends the history, as if the process had been killed: what has begun and has not ended is Unknown, and ends
// Forever. Nothing more is recorded.
func (r *Recorder) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		return
	}
	r.cut = true
	for _, op := range r.begun {
		if !op.Kind.silent() {
			op.Result = Unknown
		}
		r.ops = append(r.ops, op)
	}
}

// Err returns why a line could not be written; nil if all were. Then what [Read] reads
// is not the whole history.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Merge puts the operations of several processes of one machine in the order in which
// they began.
func Merge(histories ...[]Op) []Op {
	all := slices.Concat(histories...)
	slices.SortStableFunc(all, byStart)
	return all
}

// Write writes operations as lines of JSON.
func Write(w io.Writer, ops []Op) error {
	e := json.NewEncoder(w)
	for _, op := range ops {
		if err := e.Encode(op); err != nil {
			return fmt.Errorf("history: %w", err)
		}
	}
	return nil
}

// Read reads what [Write] or one [Recorder] wrote, by Start. An operation that began and
// did not end, because its process was killed, is Unknown and ends Forever. A last line
// that breaks off was being written when that happened and is left out: its
// operation has begun, and so is Unknown. Any other line that makes no sense is an error.
func Read(r io.Reader) ([]Op, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	var ops []Op
	begun := map[uint64]int{} // by ID, until it ends
	for n := 1; ; n++ {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		if !whole {
			break
		}
		text = rest
		var op Op
		if err := json.Unmarshal(line, &op); err != nil {
			return nil, fmt.Errorf("history: line %d: %w", n, err)
		}
		i, ok := begun[op.ID]
		if ok {
			ops[i] = op
			delete(begun, op.ID)
			continue
		}
		if op.ID != 0 && op.Result == "" && op.End == Forever {
			begun[op.ID] = len(ops)
			if !op.Kind.silent() {
				op.Result = Unknown
			}
		}
		ops = append(ops, op)
	}
	for _, op := range ops {
		if err := op.Check(); err != nil {
			return nil, err
		}
	}
	return Merge(ops), nil
}
