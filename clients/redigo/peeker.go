package redigonode

import (
	"bufio"
	"net"
	"reflect"
	"syscall"

	"github.com/gomodule/redigo/redis"
)

// A peeker looks whether anything has come on a connection, without waiting for it: a reply, or the end.
type peeker struct {
	raw  syscall.RawConn // nil: the connection shows none
	peek func(fd uintptr)
	came bool // what peek found

	buffer *bufio.Reader // what the reader has taken; nil: the connection shows none
}

// begin makes it the peeker of a connection.
func (s *peeker) begin(conn redis.Conn) {
	nc, buffer := within(conn)
	s.buffer = buffer
	if over, ok := nc.(interface{ NetConn() net.Conn }); ok { // TLS
		nc = over.NetConn()
	}
	if socket, ok := nc.(syscall.Conn); ok {
		s.raw, _ = socket.SyscallConn()
	}
	s.peek = func(fd uintptr) { s.came = readable(fd) }
}

// readable reports whether a read would not have to wait. Only the writer calls it while nothing is in flight, and
// later only who has the pipe's lock.
func (s *peeker) readable() bool {
	return s.raw != nil && (s.raw.Control(s.peek) != nil || s.came)
}

// more reports whether the reader has taken more than it has delivered. Only the reader calls it.
func (s *peeker) more() bool { return s.buffer != nil && s.buffer.Buffered() > 0 }

// within is what a connection of redigo reads from, and its buffer, also within another redis.Conn; nil: not known.
// redigo shows neither, and has no means to look whether anything has come without waiting for it. So
// within takes them from the fields that have them. If redigo calls a field otherwise some day, a test fails,
// and a connection at rest is trusted for probeAfter.
func within(conn redis.Conn) (net.Conn, *bufio.Reader) {
	for v := reflect.ValueOf(conn); ; v = v.FieldByName("Conn").Elem() {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return nil, nil
		}
		if nc := field[net.Conn](v, "conn"); nc != nil {
			br := field[*bufio.Reader](v, "br")
			if br == nil {
				return *nc, nil
			}
			return *nc, *br
		}
		if within := v.FieldByName("Conn"); !within.IsValid() || within.Kind() != reflect.Interface {
			return nil, nil
		}
	}
}

// field is where a struct has a field of that name and type; nil: it has none.
func field[T any](v reflect.Value, name string) *T {
	f := v.FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() || !f.CanAddr() {
		return nil
	}
	return (*T)(f.Addr().UnsafePointer())
}
