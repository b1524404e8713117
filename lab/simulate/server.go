package simulate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"
)

// A Server is a place at which an embedded Redis serves. Its methods are those of a rig.Node. It runs the
// algorithms' own scripts, and counts time by the bubble's clock.
type Server struct {
	number int

	mu       sync.Mutex
	serves   *instance            // nil: it is dead
	disk     *miniredis.Miniredis // what a dead one had
	persists bool                 // it keeps all that it has answered, also over a Restart
	replica  *miniredis.Miniredis
	ahead    time.Duration // by how much its clock is
	former   []*instance   // primaries, which live
	links    []*Link
	lives    int // how many processes it has had
}

// An instance is one Redis: a process with its data.
type instance struct {
	redis *miniredis.Miniredis
	run   string // the process's id
	past  string // master_replid2: the history that it took over when it was promoted

	mu      sync.Mutex
	thaw    chan struct{} // closed when it is not frozen any more; nil: it is not frozen
	ends    bool
	replica bool
	full    bool // of memory
	denied  []string
	ahead   time.Duration // by how much its machine's clock is

	turn   chan struct{}               // held while it carries out a command
	serves atomic.Pointer[server.Peer] // the client whose command that is
	wrote  bool                        // the command has: then nothing is refused for want of memory
}

func newServer(number int) *Server {
	s := &Server{number: number}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serves = s.start(miniredis.NewMiniRedis())
	return s
}

// start makes a process of what is in memory.
func (s *Server) start(r *miniredis.Miniredis) *instance {
	s.lives++
	i := &instance{redis: r, ahead: s.ahead, turn: make(chan struct{}, 1), run: fmt.Sprintf("%020d%020d", s.number, s.lives)}
	r.ClockTTL(true)
	c, err := r.Dial() // the first connection starts it
	if err != nil {
		panic(err) // it listens to nobody, so nothing can fail
	}
	c.Close()
	r.Server().SetPreHook(i.before)
	return i
}

// Link is a process's network to whatever serves here.
func (s *Server) Link(seed, number uint64) *Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := newLink(seed, number, func(c net.Conn) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.serves == nil {
			return syscall.ECONNREFUSED
		}
		s.serves.redis.Server().ServeConn(inWordsOfRedis{c})
		return nil
	})
	s.links = append(s.links, l)
	return l
}

// inWordsOfRedis is the server's end of a connection. Where a command fails in a script, miniredis says that the script does not
// compile; Redis says why the command failed, and clients go by that.
type inWordsOfRedis struct{ net.Conn }

func (c inWordsOfRedis) Write(b []byte) (int, error) {
	if _, err := c.Conn.Write(failedInScript.ReplaceAll(b, []byte("-$1 script: f, on @user_script:1.\r\n"))); err != nil {
		return 0, err
	}
	return len(b), nil
}

var failedInScript = regexp.MustCompile(`-ERR Error compiling script \(new function\): :\d+: ([A-Z]+ [^\r]*?) +stack traceback:[^\r]*\r\n`)

// before sees each command, also those of scripts, and answers it if that is due to a fault. Like Redis, it carries out
// one command after the other.
func (i *instance) before(p *server.Peer, cmd string, args ...string) (done bool) {
	if nested(p) || p == i.serves.Load() {
		return i.refuses(p, cmd)
	}
	defer i.takeTurn()()
	if i.thawed(); i.ended() {
		p.Close()
		return true
	}
	i.tick()
	i.change(func(i *instance) { i.wrote = false })
	i.serves.Store(p)
	i.redis.Server().Dispatch(p, append([]string{cmd}, args...))
	i.serves.Store(nil)
	return true
}

// takeTurn waits until no command is being carried out, and keeps others back until the turn is given back.
func (i *instance) takeTurn() (giveBack func()) {
	i.turn <- struct{}{}
	return func() { <-i.turn }
}

// refuses answers a command that the server cannot carry out now, or that miniredis does not know.
func (i *instance) refuses(p *server.Peer, cmd string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	writes := slices.Contains(writing, cmd)
	switch {
	case slices.Contains(i.denied, strings.ToLower(cmd)):
		p.WriteError(fmt.Sprintf("NOPERM this user has no permissions to run the '%s' command", strings.ToLower(cmd)))
	case i.replica && writes:
		p.WriteError("READONLY You can't write against a read only replica.")
	case i.full && slices.Contains(growing, cmd) && !i.wrote:
		p.WriteError("OOM command not allowed when used memory > 'maxmemory'.")
	case cmd == "INFO":
		p.WriteBulk(i.info())
	case cmd == "HELLO" && i.replica:
		p.WriteMapLen(1)
		p.WriteBulk("role")
		p.WriteBulk("replica")
	default:
		i.wrote = i.wrote || writes
		return false
	}
	return true
}

// thawed waits while the server is frozen.
func (i *instance) thawed() {
	i.mu.Lock()
	thaw := i.thaw
	i.mu.Unlock()
	if thaw != nil {
		<-thaw
	}
}

func (i *instance) ended() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ends
}

// tick sets miniredis' clock. It does not hold mu meanwhile: miniredis may be running a script, whose commands come to before.
func (i *instance) tick() {
	i.mu.Lock()
	ahead := i.ahead
	i.mu.Unlock()
	if ahead != 0 {
		i.redis.SetTime(time.Now().Add(ahead))
	}
}

// nested reports whether a script sent the command. miniredis knows, and does not say.
func nested(p *server.Peer) bool {
	ctx := reflect.ValueOf(p.Ctx)
	return ctx.IsValid() && ctx.Elem().FieldByName("nested").Bool()
}

// The commands of the algorithms that write, and those of them that take memory.
var (
	growing = []string{"SET", "SETNX", "GETSET", "INCR", "INCRBY", "RPUSH", "LPUSH", "HSET", "HSETNX", "HINCRBY", "ZADD"}
	writing = append([]string{"EXEC", "DEL", "UNLINK", "EXPIRE", "PEXPIRE", "PEXPIREAT", "PERSIST", "GETDEL", "GETEX", "LPOP", "RPOP", "LREM", "LSET", "HDEL", "ZREM", "ZREMRANGEBYSCORE"}, growing...)
)

// info is what the guard of redlock asks for.
func (i *instance) info() string {
	role := "master"
	if i.replica {
		role = "slave"
	}
	return fmt.Sprintf("# Server\r\nredis_version:7.0.15\r\nrun_id:%s\r\n# Replication\r\nrole:%s\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n", i.run, role, i.run, i.past)
}

// change changes the process that serves.
func (s *Server) change(what func(*instance)) error {
	i, err := s.serving()
	if err == nil {
		i.change(what)
	}
	return err
}

// serving is the process that serves here.
func (s *Server) serving() (*instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serves == nil {
		return nil, errors.New("simulate: the server is dead")
	}
	return s.serves, nil
}

func (i *instance) change(what func(*instance)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	what(i)
}

// Freeze stops it: connections stay, more are accepted, and nothing answers.
func (s *Server) Freeze(context.Context) error {
	return s.change(func(i *instance) {
		if i.thaw == nil {
			i.thaw = make(chan struct{})
		}
	})
}

// Thaw lets it go on.
func (s *Server) Thaw(context.Context) error { return s.change((*instance).goOn) }

func (i *instance) goOn() {
	if i.thaw != nil {
		close(i.thaw)
		i.thaw = nil
	}
}

// Kill ends it. Its connections end, and new ones are refused.
func (s *Server) Kill(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serves != nil {
		s.end(s.serves)
		s.disk, s.serves = s.serves.redis, nil
	}
	return nil
}

// end ends a process.
func (s *Server) end(i *instance) {
	i.change(func(i *instance) {
		i.ends = true
		i.goOn()
	})
	s.reset()
	i.redis.Close()
}

// Restart starts it again.
func (s *Server) Restart(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := miniredis.NewMiniRedis()
	if s.persists {
		imitate(r, s.disk)
	}
	s.serves, s.disk = s.start(r), nil
	return nil
}

// Replicate gives it a replica that has all that it has now, and gets nothing more.
func (s *Server) Replicate(context.Context) error {
	i, err := s.serving()
	if err != nil {
		return err
	}
	defer i.takeTurn()()
	s.replica = miniredis.NewMiniRedis()
	s.replica.ClockTTL(true)
	imitate(s.replica, i.redis)
	return nil
}

// Promote makes the replica of Replicate the primary. The old primary becomes a replica, and keeps its connections.
func (s *Server) Promote(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.serves
	old.change(func(i *instance) { i.replica = true })
	s.former = append(s.former, old)
	s.serves = s.start(s.replica)
	s.serves.past = old.run
	return nil
}

// HandOver is Promote of a replica that has everything.
func (s *Server) HandOver(ctx context.Context) error {
	if err := s.ReadOnly(ctx); err != nil {
		return err
	}
	return errors.Join(s.Replicate(ctx), s.Promote(ctx))
}

// ends are the times at which what it keeps of a lock lapses, one for each hold, by the bubble's clock. ok is false if it does not say:
// it is dead, or frozen, or the key has no TTL.
func (s *Server) ends(key string) (all []time.Time, ok bool) {
	i, err := s.serving()
	if err != nil {
		return nil, false
	}
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	default:
		return nil, false
	}
	i.tick()
	s.mu.Lock()
	ahead := s.ahead
	s.mu.Unlock()
	add := func(unixMilli float64) { all = append(all, time.UnixMilli(int64(unixMilli)+1).Add(-ahead)) }
	switch i.redis.Type(key) {
	case "":
		return nil, true
	case "zset":
		scores, _ := i.redis.SortedSet(key)
		for _, score := range scores {
			add(score)
		}
	case "hash":
		fields, _ := i.redis.HKeys(key)
		for _, f := range fields {
			if ends, err := strconv.ParseFloat(i.redis.HGet(key, f), 64); err == nil && strings.HasPrefix(f, "hold:") {
				add(ends)
			}
		}
	default:
		all = []time.Time{time.Now().Add(i.redis.TTL(key))}
	}
	return all, i.redis.TTL(key) > 0
}

// imitate copies all keys.
func imitate(to, from *miniredis.Miniredis) {
	for _, k := range from.Keys() {
		switch from.Type(k) {
		case "string":
			v, _ := from.Get(k)
			to.Set(k, v)
		case "list":
			all, _ := from.List(k)
			to.RPush(k, all...)
		case "hash":
			fields, _ := from.HKeys(k)
			for _, f := range fields {
				to.HSet(k, f, from.HGet(k, f))
			}
		case "zset":
			all, _ := from.SortedSet(k)
			for member, score := range all {
				to.ZAdd(k, score, member)
			}
		}
		if ttl := from.TTL(k); ttl > 0 {
			to.SetTTL(k, ttl)
		}
	}
}

// FlushAll deletes every key.
func (s *Server) FlushAll(context.Context) error {
	i, err := s.serving()
	if err != nil {
		return err
	}
	i.redis.FlushAll()
	return nil
}

// FlushScripts makes it forget every script.
func (s *Server) FlushScripts(context.Context) error {
	i, err := s.serving()
	if err != nil {
		return err
	}
	c, err := i.redis.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = redis.NewConn(c, 0, 0).Do("SCRIPT", "FLUSH")
	return err
}

// FillMemory leaves it no memory, until FreeMemory.
func (s *Server) FillMemory(context.Context) error {
	return s.change(func(i *instance) { i.full = true })
}

func (s *Server) FreeMemory(context.Context) error {
	return s.change(func(i *instance) { i.full = false })
}

// ReadOnly makes it a replica of nobody, until Writable.
func (s *Server) ReadOnly(context.Context) error {
	return s.change(func(i *instance) { i.replica = true })
}

func (s *Server) Writable(context.Context) error {
	return s.change(func(i *instance) { i.replica = false })
}

// Deny forbids commands, also to scripts, until Allow.
func (s *Server) Deny(_ context.Context, commands ...string) error {
	return s.change(func(i *instance) { i.denied = commands })
}

func (s *Server) Allow(context.Context) error { return s.change(func(i *instance) { i.denied = nil }) }

// KillClients ends all connections.
func (s *Server) KillClients(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset()
	return nil
}

func (s *Server) reset() {
	for _, l := range s.links {
		l.Reset()
	}
}

// JumpClock sets its clock forward, or back. Redis notes when a key expires, so after a step back each key lasts
// longer; miniredis notes how much is left.
func (s *Server) JumpClock(_ context.Context, by time.Duration) error {
	i, err := s.serving()
	if err != nil {
		return err
	}
	defer i.takeTurn()()
	s.mu.Lock()
	s.ahead += by
	i.change(func(i *instance) { i.ahead = s.ahead })
	s.mu.Unlock()
	i.tick()
	for _, k := range i.redis.Keys() {
		if ttl := i.redis.TTL(k); ttl > 0 && by < 0 {
			i.redis.SetTTL(k, ttl-by)
		}
	}
	return nil
}

// Close ends whatever has served here.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range append(s.former, s.serves) {
		if i != nil {
			s.end(i)
		}
	}
	s.serves = nil
}
