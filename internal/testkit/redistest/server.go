package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/machine"
)

// Config is how a server of one's own is started. The zero value keeps nothing on disk
// and asks for no password.
type Config struct {
	User     string // a user with all rights, the default user being disabled; needs Password
	Password string
	Database int      // what Pool and URL select
	Args     []string // further arguments of redis-server, such as --appendonly yes

	// Files, if not nil, are in the server's data directory before it starts: certificates,
	// a configuration. The directory is one of this machine's then, so that a socket in it can
	// be reached: see Server.Dir.
	Files map[string][]byte
	// Sentinel, if set, names the one of Files that is its configuration, and the server is
	// not a Redis but a Sentinel. User and Password are Sentinel's to be set there.
	Sentinel string
}

func (c Config) check() error {
	if c.User != "" && c.Password == "" {
		return errors.New("redistest: Config.User without Config.Password: a user that needs no password proves nothing about authentication")
	}
	if strings.ContainsAny(c.User+c.Password, " \t\r\n") {
		return errors.New("redistest: Config.User and Config.Password may not contain white space: they become arguments of redis-server")
	}
	if c.Database < 0 {
		return fmt.Errorf("redistest: Config.Database = %d, want 0 or more", c.Database)
	}
	for name := range c.Files {
		if name != filepath.Base(name) || name == "." || name == ".." {
			return fmt.Errorf("redistest: Config.Files has %q, want names without a directory", name)
		}
	}
	if _, there := c.Files[c.Sentinel]; c.Sentinel != "" && !there {
		return fmt.Errorf("redistest: Config.Sentinel = %q, want the name of one of Config.Files", c.Sentinel)
	}
	return nil
}

// args are the arguments of redis-server. The caller's come last, and so win.
func (c Config) args(bind string, port int) []string {
	if c.Sentinel != "" {
		return append([]string{c.Sentinel, "--sentinel", "--bind", bind, "--port", strconv.Itoa(port)}, c.Args...)
	}
	a := []string{"--bind", bind, "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no"}
	if bind != machine.Loopback {
		a = append(a, "--protected-mode", "no") // the container's network is the wall
	}
	switch {
	case c.User != "":
		a = append(a, "--user", c.User, "on", ">"+c.Password, "~*", "&*", "+@all", "--user", "default", "off")
	case c.Password != "":
		a = append(a, "--requirepass", c.Password)
	}
	return append(a, c.Args...)
}

func (c Config) url(addr string) string {
	u := url.URL{Scheme: "redis", Host: addr}
	if c.Password != "" {
		u.User = url.UserPassword(c.User, c.Password)
	}
	if c.Database != 0 {
		u.Path = "/" + strconv.Itoa(c.Database)
	}
	return u.String()
}

// serverURL turns an entry of REDIS_ADDRS into a URL.
func serverURL(s string) (string, error) {
	if !strings.Contains(s, "://") {
		s = "redis://" + s
	}
	u, err := url.Parse(s)
	if err != nil {
		return "", errors.New("redistest: REDIS_ADDRS: an entry is not a URL: want host:port or redis://[user:password@]host:port[/database]") // the cause would print the password
	}
	host := u.Hostname()
	noAddress := strings.Contains(host, ":") && net.ParseIP(host) == nil
	if u.Scheme != "redis" && u.Scheme != "rediss" || host == "" || noAddress {
		return "", fmt.Errorf("redistest: REDIS_ADDRS: %s: want host:port or redis://[user:password@]host:port[/database]", u.Redacted())
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "6379")
	}
	return u.String(), nil
}

// An instance is what a Server runs on. Its methods are called one at a time.
type instance interface {
	url() string
	// Failed says why the server is not running, with its last words; nil if it runs.
	Failed(ctx context.Context) error
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	Kill(ctx context.Context) error    // returns once it is dead
	Restart(ctx context.Context) error // a dead one; does not wait until it answers
	remove(ctx context.Context) error  // with all it has left

	files(ctx context.Context) (map[string][]byte, error)   // of its data directory
	put(ctx context.Context, files map[string][]byte) error // into it
	peer(ctx context.Context) (addr string, err error)      // host:port for its peers
}

// Server is one Redis. Its methods may be called by several goroutines.
type Server struct {
	farm   *Farm
	m      instance
	url    string
	shared bool
	pool   *redis.Pool
	born   atomic.Pointer[time.Time] // last start: connections older than it are dead

	changing sync.Mutex // one change of state at a time
	ended    bool
	dead     bool
	frozen   bool

	mu      sync.Mutex
	version string
	run     string     // what the server calls this run of itself; empty: it does not say
	watch   redis.Conn // looks at the server: see look
	looks   int64      // requests sent over watch since the server's start
}

func newServer(f *Farm, m instance, shared bool) *Server {
	s := &Server{farm: f, m: m, url: m.url(), shared: shared}
	s.touch()
	s.pool = &redis.Pool{
		MaxIdle:     32,
		IdleTimeout: 2 * time.Minute,
		DialContext: s.dial,
		// A connection from before a restart is dead. This finds out without a command,
		// which would spoil the counts of those who count commands.
		TestOnBorrow: func(_ redis.Conn, returned time.Time) error {
			if returned.Before(*s.born.Load()) {
				return errors.New("redistest: connection is older than the server")
			}
			return nil
		},
	}
	return s
}

func (s *Server) touch() {
	now := time.Now()
	s.born.Store(&now)
}

func (s *Server) dial(ctx context.Context) (redis.Conn, error) {
	return redis.DialURLContext(ctx, s.url,
		redis.DialConnectTimeout(5*time.Second),
		redis.DialReadTimeout(10*time.Second),
		redis.DialWriteTimeout(10*time.Second))
}

// Addr is host:port. It stays the same over a restart.
func (s *Server) Addr() string {
	u, err := url.Parse(s.url)
	if err != nil {
		return s.url // cannot be: it was parsed before
	}
	return u.Host
}

// URL is redis://[user:password@]host:port[/database].
func (s *Server) URL() string { return s.url }

// Knows reports whether the server has one of the commands.
func (s *Server) Knows(ctx context.Context, commands ...string) (bool, error) {
	if s.Version() == Imitation { // which does not know the question
		return false, nil
	}
	known, err := redis.Values(s.do(ctx, "COMMAND", redis.Args{}.Add("INFO").AddFlat(commands)...))
	return slices.ContainsFunc(known, func(k any) bool { return k != nil }), err
}

// Version is what runs there, as it says itself: "Redis 7.0.15", "Valkey 8.1.1".
func (s *Server) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Pool is a pool of connections to the server, with its user and database. It survives
// a restart, and ends with the server.
func (s *Server) Pool() *redis.Pool { return s.pool }

// ready waits until the server answers, and asks for its version.
func (s *Server) ready(ctx context.Context) error {
	limit, cancel := context.WithTimeoutCause(ctx, machine.StartLimit, fmt.Errorf("no answer within %v", machine.StartLimit))
	defer cancel()
	end, _ := limit.Deadline() // the network's clock strikes a little before limit ends
	var last error
	err := machine.Poll(limit, func() (bool, error) {
		err := s.ping(limit)
		if err == nil {
			return true, s.m.Failed(limit) // dead, and somebody else answers in its place?
		}
		if limit.Err() == nil && time.Now().Before(end) || last == nil { // an error that time cut short says less
			last = err
		}
		var said redis.Error
		if errors.As(err, &said) && !strings.HasPrefix(said.Error(), "LOADING") {
			return false, err // it answers, and will not say anything else
		}
		return false, s.m.Failed(limit) // it does not help to ask a dead one
	})
	if err != nil && limit.Err() != nil && last != nil {
		err = fmt.Errorf("%w (last: %w)", err, last)
	}
	if err != nil {
		return err
	}
	info, err := s.Info(ctx, "server")
	s.mu.Lock()
	defer s.mu.Unlock()
	var refused redis.Error
	_, embedded := s.m.(*embeddedMachine)
	switch {
	case embedded: // it refuses INFO server
		s.version = Imitation
	case errors.As(err, &refused): // a given server may forbid INFO, and is no worse for it
		s.version = "Redis (version not known: " + refused.Error() + ")"
	case err != nil:
		return err
	default:
		s.version, s.run = versionOf(info), info["run_id"]
	}
	return nil
}

func (s *Server) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := s.look(ctx, "PING")
	return err
}

// do sends one command over a connection of the pool.
func (s *Server) do(ctx context.Context, cmd string, args ...any) (any, error) {
	c, err := s.pool.GetContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("redistest: %s: %w", s.Addr(), err)
	}
	defer c.Close()
	reply, err := redis.DoContext(c, ctx, cmd, args...)
	if err != nil {
		what := fmt.Sprintln(append([]any{cmd}, args[:min(len(args), 2)]...)...)
		return nil, fmt.Errorf("redistest: %s: %s: %w", s.Addr(), strings.TrimSpace(what), err)
	}
	return reply, nil
}

// Imitation is the Version of an embedded server.
const Imitation = "miniredis (version not known)"

func versionOf(info map[string]string) string {
	if info["server_name"] == "valkey" {
		return "Valkey " + info["valkey_version"] // redis_version is what it is compatible with
	}
	if v := info["redis_version"]; v != "" {
		return "Redis " + v
	}
	return "an unknown server"
}

// look asks over a connection of its own, which stays open: a server reads the end of a connection
// when it gets to it, which may be in the middle of somebody's count of round trips.
func (s *Server) look(ctx context.Context, cmd string, args ...any) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		fresh := s.watch == nil
		if fresh {
			c, err := s.dial(ctx)
			if err != nil {
				return nil, err
			}
			s.watch = c
		}
		reply, err := redis.DoContext(s.watch, ctx, cmd, args...)
		var refused redis.Error
		if err == nil || errors.As(err, &refused) {
			s.looks++
			return reply, err
		}
		s.watch.Close()
		s.watch = nil
		if fresh || ctx.Err() != nil {
			return nil, err
		}
	}
}

// Info is one section of INFO.
func (s *Server) Info(ctx context.Context, section string) (map[string]string, error) {
	text, err := redis.String(s.look(ctx, "INFO", section))
	if err != nil {
		return nil, fmt.Errorf("redistest: %s: INFO %s: %w", s.Addr(), section, err)
	}
	return parseInfo(text), nil
}

// Replicated waits until a replica has all that the server has now.
func (s *Server) Replicated(ctx context.Context, replica *Server) error {
	peer, err := s.Peer(ctx)
	if err != nil {
		return err
	}
	m, err := s.Info(ctx, "replication")
	if err != nil {
		return err
	}
	want, err := strconv.ParseInt(m["master_repl_offset"], 10, 64)
	if err != nil {
		return fmt.Errorf("redistest: %s: %w", s.Addr(), err)
	}
	limit, cancel := context.WithTimeoutCause(ctx, machine.StartLimit, fmt.Errorf("redistest: %s has not all of %s within %v", replica.Addr(), s.Addr(), machine.StartLimit))
	defer cancel()
	return machine.Poll(limit, func() (bool, error) {
		r, err := replica.Info(limit, "replication")
		// The offset is its own until it is the master's.
		if err != nil || net.JoinHostPort(r["master_host"], r["master_port"]) != peer || r["master_link_status"] != "up" || r["master_sync_in_progress"] != "0" {
			return false, err
		}
		have, err := strconv.ParseInt(r["slave_repl_offset"], 10, 64)
		return have >= want, err
	})
}

func parseInfo(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[k] = v
		}
	}
	return m
}

// Calls counts the commands that the server has executed since it started, by name in lower case
// ("client|kill" with its subcommand), without INFO, which does the counting. Commands called by
// a script count as well as the script. On a shared server the others' commands are counted too:
// measure on one of your own.
func (s *Server) Calls(ctx context.Context) (map[string]int64, error) {
	info, err := s.counts(ctx, "commandstats")
	if err != nil {
		return nil, err
	}
	calls := map[string]int64{}
	for k, v := range info { // cmdstat_get:calls=3,usec=…
		name, ok := strings.CutPrefix(k, "cmdstat_")
		n, _, _ := strings.Cut(strings.TrimPrefix(v, "calls="), ",")
		if !ok {
			continue
		}
		if calls[name], err = strconv.ParseInt(n, 10, 64); err != nil {
			return nil, fmt.Errorf("redistest: commandstats: %s:%s: %w", k, v, err)
		}
	}
	delete(calls, "info")
	return calls, nil
}

// counts is a section of INFO that an imitation has not got.
func (s *Server) counts(ctx context.Context, section string) (map[string]string, error) {
	if s.Version() == Imitation {
		return nil, fmt.Errorf("redistest: an imitation counts nothing: %w", ErrImpossible)
	}
	return s.Info(ctx, section)
}

// RoundTrips counts how often the server read from its clients' connections. That is
// the number of round trips as long as a request fits into one read (16 KiB) and
// nobody writes the next one before the reply: a pipeline or a transaction sent at once
// counts once. Looking does not count, but an AUTH, a SELECT and the end of a connection
// do, so only differences over open connections are exact.
func (s *Server) RoundTrips(ctx context.Context) (int64, error) {
	info, err := s.counts(ctx, "stats")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(info["total_reads_processed"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("redistest: %s does not say total_reads_processed (Redis 6.0 does): %w", s.Version(), ErrImpossible)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return n - s.looks, nil
}

// change runs one change of the server's state.
func (s *Server) change(ctx context.Context, what string, fn func() error) error {
	if s.shared {
		return fmt.Errorf("redistest: %s of %s: it is everybody's: take one of your own, with Start", what, s.Addr())
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.ended {
		return fmt.Errorf("redistest: %s of %s: %w", what, s.Addr(), ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("redistest: %s of %s: %w", what, s.Addr(), context.Cause(ctx))
	}
	if err := fn(); err != nil {
		return fmt.Errorf("redistest: %s of %s: %w", what, s.Addr(), err)
	}
	return nil
}

// Freeze stops the server's process with SIGSTOP: connections stay, and the kernel
// accepts more, but nothing answers. Time goes on: keys are found expired by Thaw.
func (s *Server) Freeze(ctx context.Context) error {
	return s.change(ctx, "freeze", func() error {
		if s.dead {
			return errors.New("it was killed: Restart it first")
		}
		err := s.m.Freeze(ctx)
		s.frozen = !errors.Is(err, ErrImpossible) // or may be, if it was given up
		return err
	})
}

// Thaw lets a frozen server go on, with whatever it was sent in the meantime. It does
// nothing to one that is not frozen.
func (s *Server) Thaw(ctx context.Context) error {
	return s.change(ctx, "thaw", func() error {
		if !s.frozen {
			return nil
		}
		if err := s.m.Thaw(ctx); err != nil {
			return err
		}
		s.frozen = false
		return nil
	})
}

// Kill ends the server with SIGKILL and returns once it is dead: connections are
// reset, and new ones refused. A second Kill does nothing.
func (s *Server) Kill(ctx context.Context) error {
	return s.change(ctx, "kill", func() error { return s.killLocked(ctx) })
}

func (s *Server) killLocked(ctx context.Context) error {
	if s.dead {
		return nil
	}
	if err := s.m.Kill(ctx); err != nil {
		return err
	}
	s.dead, s.frozen = true, false
	return nil
}

// Restart starts the server again, on the same address and with the data that its persistence kept
// (by default none), and returns once it answers. One that still runs is killed first.
func (s *Server) Restart(ctx context.Context) error {
	return s.change(ctx, "restart", func() error {
		if err := s.killLocked(ctx); err != nil {
			return err
		}
		s.forget()
		s.touch()
		if err := s.m.Restart(ctx); err != nil {
			return err
		}
		s.dead = false
		return s.ready(ctx)
	})
}

// Dead reports whether Kill has ended the server, and Restart has not started it again.
func (s *Server) Dead() bool {
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.dead
}

// Frozen reports whether Freeze has stopped the server, and Thaw has not let it go on.
func (s *Server) Frozen() bool {
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.frozen
}

// Files are those of the server's data directory, which is where it starts, by their
// slash-separated path in it: what its persistence has written. They can be read
// whatever state it is in; of one that is being written, as much as is there.
func (s *Server) Files(ctx context.Context) (files map[string][]byte, err error) {
	err = s.change(ctx, "reading the files", func() error {
		files, err = s.m.files(ctx)
		return err
	})
	return files, err
}

// Put writes files into the server's data directory, as Files has them, over those of
// the same name; others stay. The server reads them when it starts.
func (s *Server) Put(ctx context.Context, files map[string][]byte) error {
	return s.change(ctx, "writing files", func() error {
		for name := range files {
			if !filepath.IsLocal(filepath.FromSlash(name)) {
				return fmt.Errorf("%q does not lie in the data directory", name)
			}
		}
		return s.m.put(ctx, files)
	})
}

// Peer is the host:port by which other servers of the farm reach this one, for
// REPLICAOF: containers need not share our network.
func (s *Server) Peer(ctx context.Context) (addr string, err error) {
	err = s.change(ctx, "asking for the address", func() error {
		addr, err = s.m.peer(ctx)
		return err
	})
	return addr, err
}

// Dir is the server's data directory on this machine. Only a server with Config.Files has
// one; for others it is empty.
func (s *Server) Dir() string {
	if m, ok := s.m.(interface{ localDir() string }); ok {
		return m.localDir()
	}
	return ""
}

// Redial makes Pool dial again, for a test that has ended its connections.
func (s *Server) Redial() { s.touch() }

// Stop ends the server and removes everything it has left. A second Stop does nothing.
func (s *Server) Stop(ctx context.Context) error {
	if s.shared {
		return fmt.Errorf("redistest: stop of %s: it is everybody's, and ends with the farm", s.Addr())
	}
	return s.endContext(ctx)
}

// end is Stop for a caller without a context.
func (s *Server) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), machine.StartLimit)
	defer cancel()
	return s.endContext(ctx)
}

func (s *Server) endContext(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.ended {
		return nil
	}
	s.ended = true
	if s.farm != nil {
		s.farm.mu.Lock()
		delete(s.farm.servers, s)
		s.farm.mu.Unlock()
	}
	s.forget()
	if err := errors.Join(s.pool.Close(), s.m.remove(ctx)); err != nil {
		return fmt.Errorf("redistest: stop of %s: %w", s.Addr(), err)
	}
	return nil
}

// forget ends the connection that looks at the server.
func (s *Server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watch != nil {
		s.watch.Close()
		s.watch = nil
	}
	s.looks = 0 // a new process counts from zero
}
