package contender

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
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
	serving  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
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

func openStore(careless bool) (*Store, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("contender: the store: %w", err)
	}
	s := &Store{careless: careless, listener: l, conns: map[net.Conn]bool{}, cells: map[string]*cell{}}
	s.serving.Go(s.accept)
	return s, nil
}

func (s *Store) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // Close
		}
		s.mu.Lock()
		s.conns[conn] = true
		s.mu.Unlock()
		s.serving.Go(func() {
			defer conn.Close()
			for in, out := json.NewDecoder(conn), json.NewEncoder(conn); ; {
				var r storeRequest
				if in.Decode(&r) != nil || out.Encode(s.serve(r)) != nil {
					break // this client is gone
				}
			}
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
		})
	}
}

// Addr is for [Setup].Store.
func (s *Store) Addr() string { return s.listener.Addr().String() }

// Value is what is stored for a lock now.
func (s *Store) Value(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.cells[key]; c != nil {
		return c.value
	}
	return ""
}

// Close ends the store, and whatever it serves.
func (s *Store) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
	return err
}

// serve reads, or writes.
func (s *Store) serve(r storeRequest) storeAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cells[r.Key]
	if c == nil {
		c = &cell{}
		s.cells[r.Key] = c
	}
	switch {
	case r.Fence != 0 && !s.careless && !c.admits(r):
		return storeAnswer{Stale: true}
	case r.Kind == history.KindWrite:
		c.value = r.Value
	}
	return storeAnswer{Value: c.value}
}

// admits is the rule.
func (c *cell) admits(r storeRequest) bool {
	reads := r.Shares && r.Kind == history.KindRead
	if r.Fence < c.fence || r.Fence == c.fence && r.Owner != c.owner && !reads {
		return false
	}
	c.fence, c.owner = r.Fence, r.Owner
	return true
}

// A storeRequest and its answer are what goes over the wire, in JSON.
type storeRequest struct {
	Kind       history.Kind
	Key, Owner string
	Fence      uint64
	Value      string
	Shares     bool // it holds the lock next to others
}

type storeAnswer struct {
	Value string
	Stale bool
}

// A storeClient is one contender's connection to the store. Its workers take turns.
type storeClient struct {
	mu   sync.Mutex
	conn net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

func dialStore(addr string) (*storeClient, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("contender: the store: %w", err)
	}
	return &storeClient{conn: conn, in: json.NewDecoder(conn), out: json.NewEncoder(conn)}, nil
}

func (c *storeClient) close() error { return c.conn.Close() }

// ask brings a request to the store, and its answer back. An error other than ErrStale
// is that there is no store any more.
func (c *storeClient) ask(r storeRequest) (value string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var a storeAnswer
	err = c.out.Encode(r)
	if err == nil {
		err = c.in.Decode(&a)
	}
	if err != nil {
		return "", fmt.Errorf("contender: the store: %w", err)
	}
	if a.Stale {
		return "", ErrStale
	}
	return a.Value, nil
}
