package election_test

// Tests package election among processes: leaders are killed or resign, and the recorded history shows one leader at a
// time. The tests of one process are in election/.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/election"
	"github.com/lockstrategies/locks/internal/child"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/strategy"
)

const ttl = 2 * time.Second // a process that is starved for longer loses its term, which is right and slow

func TestMain(m *testing.M) {
	if !child.Run("candidate", stand) {
		redistest.Main(m)
	}
}

// A campaign is what a candidate, a child, is to do.
type campaign struct {
	Name      string
	Redis     string // URL
	Algorithm string
	Lock      string // by which it leads
	Log       string // the file of its history
}

// stand is a candidate's whole life: it says when it leads, and resigns at each message of its
// parent. Its end is that of its parent, or SIGKILL.
func stand(ctx context.Context, parent *child.Parent, j campaign) error {
	log, err := os.OpenFile(j.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(j.Redis) }}
	o := strategy.Options{TTL: ttl, RetryOnError: true, Label: j.Name}
	var locks strategy.Strategy
	if j.Algorithm == "reentrant" {
		locks, err = reentrant.New(redigonode.New(pool), o)
	} else {
		locks, err = luascript.New(redigonode.New(pool), o)
	}
	if err != nil {
		return err
	}
	defer locks.Close()

	orders := make(chan struct{})
	go func() {
		for parent.Receive(new(any)) == nil {
			orders <- struct{}{}
		}
	}()
	c := candidate{history.NewRecorder(log), j, parent, orders}
	next := c.campaigns()
	err = election.New(locks, j.Lock).Lead(ctx, func(ctx context.Context, lease strategy.Lease) error {
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
	campaign
	parent *child.Parent
	orders <-chan struct{}
}

func (c *candidate) campaigns() history.Op {
	return c.Begin(history.Op{Client: c.Name, Kind: history.KindAcquire, Key: c.Lock, TTL: ttl})
}

// reign records what the leader believes, often, until it must go or resigns.
func (c *candidate) reign(ctx context.Context, lease strategy.Lease, op history.Op) {
	op = c.End(op.Of(lease, nil))
	believed, until := op.End, op.Deadline
	fence, _ := lease.Fence()
	mine := history.Op{Client: c.Name, Key: lease.Name(), Hold: lease.Token(), Owner: lease.Owner(), Fence: fence, TTL: ttl}
	c.parent.Send("I lead") // if nobody hears it, the parent is gone, and ctx ends
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

// A rival is a candidate as its parent sees it.
type rival struct {
	*child.Process
	campaign
}

// fleet starts candidates and hears who leads.
type fleet struct {
	t     *testing.T
	stand campaign // as whom all stand
	leads chan *rival
	logs  []string
	alive []*rival
}

func (f *fleet) start() {
	f.t.Helper()
	c := &rival{campaign: f.stand}
	c.Name, c.Log = fmt.Sprintf("candidate %d", len(f.logs)+1), filepath.Join(f.t.TempDir(), "history.jsonl")
	var err error
	if c.Process, err = child.Start(child.Config{Role: "candidate", Job: c.campaign}); err != nil {
		f.t.Fatal(err)
	}
	f.logs = append(f.logs, c.Log)
	f.alive = append(f.alive, c)
	go func() {
		for c.Receive(context.Background(), new(any)) == nil {
			f.leads <- c
		}
	}()
}

// leader waits for the next; it may take what a dead leader's lock lasts, and no more than a
// slow machine adds.
func (f *fleet) leader(limit time.Duration) *rival {
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
func (f *fleet) latest(leader *rival) *rival {
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
func (f *fleet) kill(c *rival) {
	f.t.Helper()
	if err := c.Kill(); err != nil {
		f.t.Fatalf("%s: %v", c.Name, err)
	}
	f.forget(c)
}

func (f *fleet) forget(c *rival) {
	f.alive = slices.DeleteFunc(f.alive, func(x *rival) bool { return x == c })
}

// end lets all that are left end in peace.
func (f *fleet) end() {
	for _, c := range slices.Clone(f.alive) {
		if err := c.Close(time.Minute); err != nil {
			f.t.Errorf("%s: %v", c.Name, err)
		}
		f.forget(c)
	}
}

// TestLeadersAreKilled: the leader is killed, again and again, or resigns. There is
// always a next, never a second, and what they write is numbered in their order.
func TestLeadersAreKilled(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"luascript", "reentrant"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := redistest.Nodes(t, 1)[0]
			lock := fmt.Sprintf("leader of %s %d", kind, time.Now().UnixNano())
			f := &fleet{
				t: t, leads: make(chan *rival, 100),
				stand: campaign{Redis: server.URL(), Algorithm: kind, Lock: lock},
			}
			t.Cleanup(func() { // what a failure has left
				for _, c := range slices.Clone(f.alive) {
					f.kill(c)
				}
			})
			const candidates, kills, resignations = 3, 2, 1
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
					if err := leader.Send("resign"); err != nil {
						t.Fatal(err)
					}
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
			for _, v := range slices.Concat(history.Exclusion(ops, history.Rules{}), history.FenceOrder(ops, history.Rules{})) {
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
