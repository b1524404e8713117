package flashsale

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/strategy"
)

// Parent and children speak lines over pipes:
//
//	parent            child
//	a job, in JSON    ready       it has dialled, loaded, and stands at the door
//	go                a tally     in JSON, when its last buyer has left
//	bye                           it ends
//
// A child whose parent is gone reads the end of the pipe, lets its buyers leave, and
// removes the keys: so does the last of them, however the parent went.

// childVar tells a process that it is a child.
const childVar = "LOCKS_FLASHSALE_CHILD"

// mark begins the lines that children send, whatever else they print.
const mark = "flashsale: "

const (
	wordReady = "ready"
	wordGo    = "go"
	wordBye   = "bye"
)

// A job is one sale.
type job struct {
	Way      Way
	Run      string // what the keys of all sales have in them
	Told     []int  // which servers were told to vote for that time
	Sale     string // … and of this one
	Process  int    // which of the children this is
	Buyers   int
	Think    time.Duration
	Patience time.Duration
}

// startLimit is how long a process may take to be ready: dialling, and what a loaded
// machine adds.
const startLimit = 30 * time.Second

// A team is the processes in which the buyers are.
type team struct {
	members []*member
	broken  error // of no use any more, and why
}

type member struct {
	who   string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	words chan string   // closed when it says nothing more
	ended chan struct{} // closed when the process is no more
	errs  tail
	err   error // how it ended
}

// gather starts the processes. They end with ctx, or by end.
func gather(ctx context.Context, c Config) (*team, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	t := &team{}
	for i := range Processes {
		m := &member{
			who:   fmt.Sprintf("process %d", i+1),
			words: make(chan string, 8), // more than it ever says unheard
			ended: make(chan struct{}),
		}
		m.cmd = exec.CommandContext(ctx, program, c.ChildArgs...)
		m.cmd.Env = childEnv(os.Environ(), c.Servers)
		m.cmd.Cancel = func() error { return m.stdin.Close() } // it cleans up, and ends
		m.cmd.WaitDelay = 5 * time.Second                      // or is killed
		if err := m.start(); err != nil {
			t.end()
			return nil, fmt.Errorf("flashsale: starting a process: %w", err)
		}
		t.members = append(t.members, m)
	}
	return t, nil
}

// childEnv is the environment of a child: the servers are found there, and not among
// its arguments, since a URL may have a password in it. Nothing else that says which
// Redis to use is inherited: the choice is made.
func childEnv(environ []string, servers []*redistest.Server) []string {
	env := slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		return strings.HasPrefix(v, "REDIS_") && !strings.HasPrefix(v, "REDIS_CACHE_DIR=")
	})
	var urls []string
	for _, s := range servers {
		urls = append(urls, strings.ReplaceAll(s.URL(), ",", "%2C")) // a comma in a password separates nothing
	}
	return append(env, "REDIS_ADDRS="+strings.Join(urls, ","), "REDIS_KIND="+string(redistest.Given), childVar+"=1")
}

func (m *member) start() error {
	m.cmd.Stderr = &m.errs
	stdin, err := m.cmd.StdinPipe()
	if err != nil {
		return err
	}
	m.stdin = stdin
	stdout, err := m.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(m.ended)
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if word, ok := strings.CutPrefix(lines.Text(), mark); ok {
				m.words <- word
			} else {
				fmt.Fprintln(&m.errs, lines.Text())
			}
		}
		m.err = m.cmd.Wait()
		close(m.words)
	}()
	return nil
}

// sell lets the team hold one sale. If it fails at that, it is broken.
func (t *team) sell(ctx context.Context, j job) []tally {
	tallies, err := t.trySell(ctx, j)
	t.broken = err
	return tallies
}

func (t *team) trySell(ctx context.Context, j job) ([]tally, error) {
	for i, m := range t.members {
		j.Process = i
		text, err := json.Marshal(j)
		if err != nil {
			return nil, err
		}
		m.say(string(text))
	}
	for _, m := range t.members {
		if word, err := m.hear(ctx, startLimit); err != nil {
			return nil, err
		} else if word != wordReady {
			return nil, fmt.Errorf("%s: %s", m.who, word)
		}
	}
	for _, m := range t.members {
		m.say(wordGo)
	}
	var tallies []tally
	for _, m := range t.members {
		word, err := m.hear(ctx, j.Patience+startLimit)
		if err != nil {
			return tallies, err
		}
		var y tally
		if err := json.Unmarshal([]byte(word), &y); err != nil {
			return tallies, fmt.Errorf("%s: %s", m.who, word)
		}
		tallies = append(tallies, y)
	}
	return tallies, nil
}

// say needs no error: who does not hear says nothing either.
func (m *member) say(word string) { io.WriteString(m.stdin, word+"\n") }

func (m *member) hear(ctx context.Context, limit time.Duration) (string, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case word, ok := <-m.words:
		if !ok {
			return "", fmt.Errorf("%s ended (%v): %s", m.who, m.err, strings.TrimSpace(m.errs.String()))
		}
		return word, nil
	case <-timer.C:
		return "", fmt.Errorf("%s has said nothing for %v", m.who, limit)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// end ends the processes, and returns when they are no more.
func (t *team) end() {
	for _, m := range t.members {
		if t.broken == nil {
			m.say(wordBye)
		}
		m.stdin.Close()
	}
	for _, m := range t.members {
		late := time.AfterFunc(5*time.Second, func() { m.cmd.Process.Kill() })
		<-m.ended
		late.Stop()
	}
}

// tail keeps the last of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - 4096; over > 0 {
		t.buf = t.buf[over:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// IsChild tells whether this process was started as one of a sale's.
func IsChild() bool { return os.Getenv(childVar) != "" }

// Child is one of the processes of a sale: it sells as its parent says, until the
// parent says bye, or is gone, or ctx ends. The servers are the parent's, in its order.
func Child(ctx context.Context, servers []*redistest.Server, variants []subjects.Variant) error {
	if !IsChild() {
		return errors.New("this is for processes that lab flashsale starts")
	}
	signal.Ignore(syscall.SIGPIPE) // a parent that is gone must not keep us from cleaning up
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lines := make(chan string)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			lines <- in.Text()
		}
		cancel(errors.New("the parent is gone"))
	}()
	hear := func() (string, error) {
		select {
		case l := <-lines:
			return l, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	w := worker{servers: servers, variants: variants, hear: hear}
	for _, s := range servers {
		p := w.counter.pool(s.Pool())
		defer p.Close()
		w.pools = append(w.pools, p)
	}
	for {
		line, err := hear()
		if err == nil && line == wordBye {
			return nil
		}
		if err == nil {
			err = w.work(ctx, line)
		}
		if err != nil {
			if ctx.Err() != nil && w.run != "" { // else the parent is there, and does it
				err = errors.Join(err, sweep(ctx, servers, w.told, w.run))
			}
			return err
		}
	}
}

// say speaks to the parent.
func say(word string) {
	fmt.Println(mark + strings.ReplaceAll(word, "\n", " "))
}

// A worker is what a child has for all of its sales.
type worker struct {
	servers  []*redistest.Server
	variants []subjects.Variant
	hear     func() (string, error)
	counter  counter
	pools    []*redis.Pool // counted, of the servers
	run      string        // whose keys to sweep
	told     []*redistest.Server
}

// work does one job. An error ends the child.
func (w *worker) work(ctx context.Context, line string) error {
	var j job
	if err := json.Unmarshal([]byte(line), &j); err != nil {
		return err
	}
	w.run, w.told = j.Run, nil
	for _, i := range j.Told {
		w.told = append(w.told, w.servers[i])
	}
	s := &shop{
		pool:  w.pools[0],
		goods: goodsKey(j.Sale), orders: ordersKey(j.Sale),
		think: j.Think, patience: j.Patience,
	}
	s.looking.Add(j.Buyers)
	buy, end, err := w.open(ctx, s, j)
	if err != nil {
		return err
	}
	defer end()
	if err := warmUp(ctx, s.pool, j.Buyers); err != nil {
		return err
	}
	say(wordReady)
	if word, err := w.hear(); err != nil {
		return err
	} else if word != wordGo {
		return fmt.Errorf("the parent says %q, want %s", word, wordGo)
	}
	var buyers []string
	for i := range j.Buyers {
		buyers = append(buyers, fmt.Sprintf("buyer %d of process %d", i+1, j.Process+1))
	}
	s.attempts.Store(0) // those of the warm-up
	before := w.counter.n.Load()
	t := s.sell(ctx, buyers, buy)
	end() // and what it still has to send is sent
	t.Commands = w.counter.n.Load() - before
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	say(string(text))
	return nil
}

// options are the locks'. The TTL is never needed here, and a busy machine may be slow.
var options = strategy.Options{TTL: 30 * time.Second, OpTimeout: 5 * time.Second}

// open finds how to buy, and makes what that takes ready. end may be called twice.
func (w *worker) open(ctx context.Context, s *shop, j job) (buy buying, end func(), err error) {
	nothing := func() {}
	switch j.Way.Name {
	case NoLock:
		return s.noLock, nothing, nil
	case Optimistic:
		return s.optimistic, nothing, nil
	case AtomicScript:
		conn, err := s.pool.GetContext(ctx)
		if err != nil {
			return nil, nil, err
		}
		defer conn.Close()
		return s.atomicScript, nothing, buyScript.Load(conn)
	}
	i := slices.IndexFunc(w.variants, func(v subjects.Variant) bool { return v.Name == j.Way.Name })
	if i < 0 {
		return nil, nil, fmt.Errorf("there is no strategy %q here", j.Way.Name)
	}
	v := w.variants[i]
	o := options
	o.Observe = func(e strategy.Event) {
		if e.Kind == strategy.EventAttempt {
			s.attempts.Add(1)
		}
	}
	st, err := v.New(w.pools[:v.Servers], o)
	if err != nil {
		return nil, nil, err
	}
	end = sync.OnceFunc(func() { st.Close() })
	// A lock of its own, to dial and to load scripts. It may take longer than the sale.
	lease, err := waitFor(ctx, st.NewLock(fmt.Sprintf("%s warm-up %d", j.Sale, j.Process)), startLimit/2)
	if err == nil {
		err = lease.Release(ctx)
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	s.lock = st.NewLock(j.Sale)
	if j.Way.Form == NonBlocking {
		return s.nonBlocking, end, nil
	}
	return s.blocking, end, nil
}

// warmUp dials a connection for each buyer.
func warmUp(ctx context.Context, pool *redis.Pool, buyers int) error {
	for range buyers {
		conn, err := pool.GetContext(ctx)
		if err != nil {
			return err
		}
		defer conn.Close() // with all the others, or it would be the same one
		if _, err := redis.DoContext(conn, ctx, "PING"); err != nil {
			return err
		}
	}
	return nil
}
