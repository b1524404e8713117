package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Mark is a write of the operator's in the append-only file. By marks the server can be
// asked how far it has synced that file, whatever the contenders heard.
type Mark struct {
	server *server
	run    string
	text   string
	conn   redis.Conn // WAITAOF is about what its own connection has written last
}

var marks atomic.Int64

// Mark leaves a mark behind all that the server has answered. It ends with ctx.
func (n *Node) Mark(ctx context.Context) (*Mark, error) {
	n.changing.Lock()
	defer n.changing.Unlock()
	s := n.serving()
	if s.fsync == "" {
		return nil, fmt.Errorf("rig: mark at %s: it keeps no append-only file: call Persist first", s.Addr())
	}
	run, err := n.run(ctx, s)
	if err != nil {
		return nil, err
	}
	c, err := n.dial(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("rig: mark at %s: %w", s.Addr(), err)
	}
	m := &Mark{server: s, run: run, text: fmt.Sprintf("rig-mark-%d;", marks.Add(1)), conn: c}
	if _, err := c.Do("SET", "rig-mark", m.text); err != nil {
		c.Close()
		return nil, fmt.Errorf("rig: mark at %s: %w", s.Addr(), err)
	}
	return m, nil
}

// Synced reports whether the server confirms, at once or within the time, that what it had
// written up to the mark is synced. It
// takes a server that has WAITAOF: Redis 7.2 and later, and Valkey.
func (m *Mark) Synced(within time.Duration) (bool, error) {
	reply, err := redis.Ints(redis.DoWithTimeout(m.conn, within+patience, "WAITAOF", 1, 0, max(within.Milliseconds(), 1)))
	if err != nil {
		return false, fmt.Errorf("rig: WAITAOF at %s: %w", m.server.Addr(), err)
	}
	return len(reply) == 2 && reply[0] == 1, nil
}

// SyncsTruly reports whether the server, whose file must be synced every second, confirms
// what it has synced and no more: Valkey 8.1 and 9.1 confirm what they have only written
// (https://github.com/redis/redis/pull/13793). Such syncs are about a second apart, so who
// confirms two writes within less has not waited for them.
func (n *Node) SyncsTruly(ctx context.Context) (bool, error) {
	if fsync := n.serving().fsync; fsync != "everysec" {
		return false, fmt.Errorf("rig: syncs of %s: call Persist with everysec first", n.Server().Addr())
	}
	confirmed := 0
	for i, within := range []time.Duration{patience, everySecond / 4, everySecond / 4, everySecond / 4} {
		m, err := n.Mark(ctx)
		if err != nil {
			return false, err
		}
		synced, err := m.Synced(within)
		m.conn.Close()
		if err != nil {
			return false, err
		}
		if i == 0 && !synced {
			return false, fmt.Errorf("rig: %s has synced nothing within %v", n.Server().Addr(), within)
		}
		if i > 0 && synced {
			confirmed++
		}
	}
	return confirmed < 2, nil
}

// PowerLossBehind restarts the server as if its machine had lost power when the disk had
// the append-only file up to the mark last. It is an emulation: the process is killed, and
// the file is cut there. The server must confirm that it has synced that much, and, if
// there is a next mark, not more than is before that: else this is refused with ErrStale,
// and the server goes on with all that it has.
func (n *Node) PowerLossBehind(ctx context.Context, last, next *Mark) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	s := n.serving()
	for _, m := range []*Mark{last, next} {
		if m == nil {
			continue
		}
		if run, err := n.run(ctx, s); err != nil {
			return err
		} else if s != m.server || run != m.run {
			return fmt.Errorf("rig: power loss of %s: the mark is not of this run of this server", s.Addr())
		}
	}
	// From here on it writes nothing any more, however long its death takes.
	if err := n.tell(ctx, s, "CLIENT", "PAUSE", patience.Milliseconds(), "WRITE"); err != nil {
		return err
	}
	synced, err := last.Synced(0)
	more := false
	if err == nil && next != nil {
		more, err = next.Synced(0)
	}
	if err == nil && (!synced || more) {
		err = ErrStale
	}
	if err != nil {
		return errors.Join(err, n.tell(ctx, s, "CLIENT", "UNPAUSE"))
	}
	if err := n.kill(ctx); err != nil {
		return err // still paused, perhaps; that ends by itself
	}
	files, err := s.Files(ctx)
	if err != nil {
		return wrap(err)
	}
	cut, err := last.cut(files)
	if err != nil {
		return err
	}
	if err := s.Put(ctx, cut); err != nil {
		return wrap(err)
	}
	return n.restart(ctx)
}

// cut ends the append-only file behind the mark.
func (m *Mark) cut(files map[string][]byte) (map[string][]byte, error) {
	for name, data := range files {
		i := bytes.Index(data, []byte(m.text))
		if i < 0 || !strings.HasSuffix(name, ".incr.aof") {
			continue
		}
		return map[string][]byte{name: data[:i+len(m.text)+len("\r\n")]}, nil
	}
	return nil, fmt.Errorf("rig: no append-only file of %s has the mark", m.server.Addr())
}
