package election_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/quotes"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/lab/election"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/strategy"
)

// What a child finds in its environment: who it is, where Redis is, where its history goes,
// and what lock of what algorithm it is to lead by.
const (
	nameVar = "LOCKS_CANDIDATE"
	urlVar  = "LOCKS_CANDIDATE_URL"
	logVar  = "LOCKS_CANDIDATE_LOG"
	lockVar = "LOCKS_CANDIDATE_LOCK"
	kindVar = "LOCKS_CANDIDATE_KIND"

	ttl = 2 * time.Second // a process that is starved for longer loses its term, which is right and slow
)

func TestMain(m *testing.M) {
	if os.Getenv(nameVar) != "" {
		if err := stand(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	redistest.Main(m)
}

// stand is a candidate's whole life: it tells on standard output when it leads, and resigns
// at each line of standard input. Its end is that of its input, or SIGKILL.
func stand() error {
	log, err := os.OpenFile(os.Getenv(logVar), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(os.Getenv(urlVar)) }}
	o := strategy.Options{TTL: ttl, RetryOnError: true, Label: os.Getenv(nameVar)}
	var locks strategy.Strategy
	if os.Getenv(kindVar) == "reentrant" {
		locks, err = reentrant.New(pool, o)
	} else {
		locks, err = luascript.New(pool, o)
	}
	if err != nil {
		return err
	}
	defer locks.Close()

	ctx, end := context.WithCancel(context.Background())
	orders := make(chan string)
	go func() {
		defer end()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			orders <- lines.Text()
		}
	}()
	c := candidate{history.NewRecorder(log), os.Getenv(nameVar), orders}
	next := c.campaigns()
	err = election.Lead(ctx, locks.NewLock(os.Getenv(lockVar)), func(ctx context.Context, lease strategy.Lease) error {
		c.reign(ctx, lease, next)
		next = c.campaigns()
		return nil
	})
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, c.Err())
}

type candidate struct {
	*history.Recorder
	name   string
	orders <-chan string
}

func (c *candidate) campaigns() history.Op {
	return c.Begin(history.Op{Client: c.name, Kind: history.KindAcquire, Key: os.Getenv(lockVar), TTL: ttl})
}

// reign records what the leader believes, often, until it must or is told to go.
func (c *candidate) reign(ctx context.Context, lease strategy.Lease, op history.Op) {
	op = c.End(op.Of(lease, nil))
	believed, until := op.End, op.Deadline
	fence, _ := lease.Fence()
	mine := history.Op{Client: c.name, Key: lease.Name(), Hold: lease.Token(), Owner: lease.Owner(), Fence: fence, TTL: ttl}
	fmt.Println("leads", history.Now())
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-c.orders:
			c.resigns(mine)
			return
		case <-ctx.Done():
			if lease.Err() == nil { // it is to end altogether
				c.resigns(mine)
				return
			}
			mine.Kind, mine.Start, mine.End, mine.TTL = history.KindLost, believed, history.Now(), 0
			c.Add(mine)
			return
		case <-look.C:
		}
		now := history.Now() // what is said next was so then, too
		if lease.Err() != nil {
			continue
		}
		if d := history.At(lease.Deadline()); d > until {
			renewed := mine
			renewed.Kind, renewed.Result, renewed.Noticed = history.KindRenew, history.OK, true
			renewed.Start, renewed.End, renewed.Deadline = believed, now, d
			c.Add(renewed)
			until = d
		}
		believed = now
	}
}

// resigns records that from here on the leader does not believe in its term. The release
// itself is Do's.
func (c *candidate) resigns(mine history.Op) {
	mine.Kind, mine.TTL = history.KindRelease, 0
	mine = c.Begin(mine)
	mine.Result = history.OK
	c.End(mine)
}

// A child is a candidate as its creator sees it.
type child struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   string
}

// fleet starts candidates and hears who leads.
type fleet struct {
	t     *testing.T
	env   []string
	leads chan *child
	logs  []string
	alive []*child
}

func (f *fleet) start() {
	f.t.Helper()
	c := &child{name: fmt.Sprintf("candidate %d", len(f.logs)+1)}
	c.log = filepath.Join(f.t.TempDir(), "history.jsonl")
	program, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	c.cmd = exec.Command(program)
	c.cmd.Env = append(os.Environ(), append(f.env, nameVar+"="+c.name, logVar+"="+c.log)...)
	c.cmd.Stderr = os.Stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		f.t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.logs = append(f.logs, c.log)
	f.alive = append(f.alive, c)
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			switch line := lines.Text(); {
			case strings.HasPrefix(line, "leads "):
				f.leads <- c
			case strings.HasPrefix(line, "error: "):
				f.t.Errorf("%s: %s", c.name, line)
			}
		}
	}()
}

// leader waits for the next; it may take what a dead leader's lock lasts, and no more than a
// slow machine adds.
func (f *fleet) leader(limit time.Duration) *child {
	f.t.Helper()
	timeout := time.After(limit)
	for {
		select {
		case c := <-f.leads:
			if slices.Contains(f.alive, c) { // or it led, and was killed meanwhile
				return c
			}
		case <-timeout:
			f.t.Fatalf("nobody leads after %v", limit)
		}
	}
}

// latest is who leads now, if leader lost its term to another, as on a machine that is slow.
func (f *fleet) latest(leader *child) *child {
	for {
		select {
		case c := <-f.leads:
			if slices.Contains(f.alive, c) {
				leader = c
			}
		default:
			return leader
		}
	}
}

// kill ends a child with SIGKILL.
func (f *fleet) kill(c *child) {
	f.t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		f.t.Fatal(err)
	}
	c.cmd.Wait() // its error is the signal
	f.forget(c)
}

func (f *fleet) forget(c *child) {
	f.alive = slices.DeleteFunc(f.alive, func(x *child) bool { return x == c })
}

// end lets all that are left end in peace.
func (f *fleet) end() {
	for _, c := range slices.Clone(f.alive) {
		c.stdin.Close()
	}
	for _, c := range slices.Clone(f.alive) {
		if err := c.cmd.Wait(); err != nil {
			f.t.Errorf("%s ended: %v", c.name, err)
		}
		f.forget(c)
	}
}

// TestLeadersAreKilled: whoever leads is killed, again and again, or resigns. There is
// always a next, never a second, and what they write is numbered in their order.
func TestLeadersAreKilled(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"luascript", "reentrant"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := redistest.Nodes(t, 1)[0]
			lock := fmt.Sprintf("leader of %s %d", kind, time.Now().UnixNano())
			f := &fleet{
				t: t, leads: make(chan *child, 100),
				env: []string{urlVar + "=" + server.URL(), lockVar + "=" + lock, kindVar + "=" + kind},
			}
			t.Cleanup(func() { // what a failure has left
				for _, c := range slices.Clone(f.alive) {
					f.kill(c)
				}
			})
			const candidates, kills, resignations = 3, 6, 3
			for range candidates {
				f.start()
			}
			const slow = 20 * time.Second // for a machine that starts processes meanwhile
			leader := f.leader(time.Minute)
			var deaths, resigned []time.Duration
			for i := range kills + resignations {
				leader = f.latest(leader)
				began := history.Now()
				if i%3 == 2 {
					io.WriteString(leader.stdin, "resign\n")
					leader = f.leader(slow)
					resigned = append(resigned, history.Now()-began)
					continue
				}
				f.kill(leader)
				leader = f.leader(ttl + slow)
				deaths = append(deaths, history.Now()-began)
				f.start() // the dead one's successor as a candidate
			}
			f.end()

			var ops []history.Op
			for _, log := range f.logs {
				file, err := os.Open(log)
				if err != nil {
					t.Fatal(err)
				}
				part, err := history.Read(file)
				file.Close()
				if err != nil {
					t.Fatal(err)
				}
				ops = history.Merge(ops, part)
			}
			for _, op := range ops {
				if err := op.Check(); err != nil {
					t.Error(err)
				}
			}
			terms := 0
			for _, op := range ops {
				if op.Kind == history.KindAcquire && op.Result == history.OK {
					terms++
				}
			}
			if terms < kills+resignations+1 {
				t.Errorf("the history has %d terms, want %d or more", terms, kills+resignations+1)
			}
			for _, v := range slices.Concat(history.Exclusion(ops, false), history.FenceOrder(ops, false)) {
				t.Error(v)
			}
			t.Logf("%d terms; a leader that was killed had a successor after %v (TTL %v), one that resigned after %v",
				terms, rounded(deaths), ttl, rounded(resigned))
			slices.Sort(resigned)
			if least := resigned[0]; least >= ttl {
				t.Errorf("who resigned had a successor after %v at best, want less than the TTL", least)
			}
		})
	}
}

func rounded(all []time.Duration) []time.Duration {
	all = slices.Clone(all)
	for i := range all {
		all[i] = all[i].Round(time.Millisecond)
	}
	return all
}

// TestDocQuotes: what docs/election.md quotes, stands here.
func TestDocQuotes(t *testing.T) {
	t.Parallel()
	from, err := quotes.Check("../../docs/election.md")
	if err != nil {
		t.Error(err)
	}
	if from["../lab/election/election.go"] == 0 {
		t.Errorf("docs/election.md quotes %v, want election.go", from)
	}
}

// TestLead: a loss ends a term and not the campaign; an error of the reign ends both.
func TestLead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var server conformance.Memory
		locks, err := engine.New(&server, strategy.Options{RetryOnError: true})
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		enough := errors.New("enough")
		terms := 0
		err = election.Lead(t.Context(), locks.NewLock("leader"), func(ctx context.Context, lease strategy.Lease) error {
			if terms++; terms == 3 {
				return enough
			}
			server.Evict(ctx, "lock:{leader}")
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, enough) || terms != 3 {
			t.Errorf("Lead = %v after %d terms, want the reign's error after 3", err, terms)
		}
		if _, err := locks.NewLock("leader").TryAcquire(t.Context()); err != nil {
			t.Errorf("TryAcquire after Lead = %v", err)
		}
	})
}
