package contender

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"sync"

	"github.com/lockstrategies/locks/lab/history"
)

// A Store is what the locks protect: for each lock one value. It is in one process, is
// never broken, and does one thing after the other. It
// obeys every client; but for one that shows a fence this is the rule: accepted if and only if
// the fence is greater than any that was shown for this value, or equal and its owner
// the same. Reading counts: or one who has read what is new could be followed by a writer
// from before. A holder that shares a read-write lock has the fence of the writer before it, and may read.
type Store struct {
	careless bool // accepts any fence
	listener net.Listener

	mu    sync.Mutex
	cells map[string]*cell
}

type cell struct {
	value string
	fence uint64 // the greatest that was shown
	owner string // by whom
}

// ErrStale says that the store has seen a greater fence, or the same from another owner:
// nothing was read or written.
var ErrStale = errors.New("stale fence: the store was shown a greater one")

// OpenStore opens an empty store on a port of its own, for this machine only.
func OpenStore() (*Store, error) { return openStore(false) }

// OpenCarelessStore is OpenStore for one that does not look at fences, as most do not.
func OpenCarelessStore() (*Store, error) { return openStore(true) }

// NewStore is a store in memory, for contenders of this process. It has no address.
func NewStore() *Store { return &Store{cells: map[string]*cell{}} }

func openStore(careless bool) (*Store, error) {
	s := NewStore()
	s.careless = careless
	var err error
	s.listener, err = listen(s)
	return s, err
}

// listen serves the methods of what it is given, on a port of its own, for this machine only, until the listener is
// closed. Clients that are connected by then are still served.
func listen(methods any) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("contender: %w", err)
	}
	server := rpc.NewServer()
	if err := server.RegisterName("contender", methods); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			go server.ServeConn(conn)
		}
	}()
	return l, nil
}

// Addr is for [Setup].Store.
func (s *Store) Addr() string { return s.listener.Addr().String() }

// Value is what is stored for a lock now.
func (s *Store) Value(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cell(key).value
}

// cell is that of a lock. The caller holds mu.
func (s *Store) cell(key string) *cell {
	if s.cells[key] == nil {
		s.cells[key] = &cell{}
	}
	return s.cells[key]
}

// Close ends the store. A client of it that goes on is still served.
func (s *Store) Close() error { return s.listener.Close() }

// Serve reads, or writes. Clients call it from their processes.
func (s *Store) Serve(op history.Op, value *string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cell(op.Key)
	if op.Fence != 0 && !s.careless && !c.admits(op) {
		return ErrStale
	}
	if op.Kind == history.KindWrite {
		c.value = op.Value
	}
	*value = c.value
	return nil
}

// admits is the rule.
func (c *cell) admits(op history.Op) bool {
	owner, shares := cmp.Or(op.Owner, op.Hold), op.Share > 0 && op.Kind == history.KindRead
	if op.Fence < c.fence || op.Fence == c.fence && owner != c.owner && !shares {
		return false
	}
	c.fence, c.owner = op.Fence, owner
	return true
}

// ask brings a request to the store, and its answer back. An error other than ErrStale
// is that there is no store any more.
func ask(store *rpc.Client, op history.Op, value *string) error {
	err := store.Call("contender.Serve", op, value)
	switch {
	case errors.As(err, new(rpc.ServerError)):
		return ErrStale
	case err != nil:
		return fmt.Errorf("contender: the store: %w", err)
	}
	return nil
}
