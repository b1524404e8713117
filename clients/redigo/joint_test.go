// Joint commands: who shares one, who gets which reply, and what becomes of those who leave.
package redigonode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// tell is a joint script of two keys, two shared arguments, and two of one's own: it tells
// each what it was called with, unless the first of its own asks for something else.
var tell = driver.NewJointScript("tell", 2, `
local n = #KEYS / 2
local function answer(i)
  local own = ARGV[2 + i]
  if own == 'refuse' then return redis.error_reply('ERR as you wish') end
  if own == 'raise' then error('as you wish') end
  if own == 'nil' then return nil end
  if own == 'array' then return {KEYS[i], 7} end
  return table.concat({KEYS[i], KEYS[n + i], ARGV[1], ARGV[2], own, ARGV[2 + n + i]}, ' ')
end
if n == 1 then return answer(1) end
local answers = {}
for i = 1, n do
  local ok, told = pcall(answer, i)
  if not ok then told = {err = type(told) == 'table' and told.err or 'ERR ' .. tostring(told)} end
  answers[i] = told or false
end
return answers
`)

// other is as tell, and another script.
var other = driver.NewJointScript("other", 2, tell.Source()+"-- other")

// perform answers a command of tell as Redis would.
func perform(c *nodetest.Conn, cmd []string) {
	count, _ := strconv.Atoi(cmd[2])
	n, keys, args := count/2, cmd[3:3+count], cmd[3+count:]
	if n > 1 {
		c.Say("*%d\r\n", n)
	}
	for i := range n {
		switch own := args[2+i]; own {
		case "refuse", "raise":
			c.Say("-ERR as you wish\r\n")
		case "nil":
			c.Say("$-1\r\n")
		case "array":
			c.Say("*2\r\n")
			c.Bulk(keys[i])
			c.Say(":7\r\n")
		default:
			c.Bulk(strings.Join([]string{keys[i], keys[n+i], args[0], args[1], own, args[2+n+i]}, " "))
		}
	}
}

// isScript reports whether a command runs one.
func isScript(cmd []string) bool { return cmd[0] == "EVALSHA" || cmd[0] == "EVAL" }

// telling answers all as a healthy server would.
func telling(c *nodetest.Conn, cmd []string) {
	if isScript(cmd) {
		perform(c, cmd)
		return
	}
	c.Plain(cmd)
}

// A gate lets bytes leave when the test says so.
type gate struct {
	at chan struct{} // somebody writes, and waits

	mu   sync.Mutex
	shut chan struct{} // nil: open
}

type gated struct {
	net.Conn
	g *gate
}

func (c gated) Write(b []byte) (int, error) {
	c.g.mu.Lock()
	shut := c.g.shut
	c.g.mu.Unlock()
	if shut != nil {
		c.g.at <- struct{}{}
		<-shut
	}
	return c.Conn.Write(b)
}

// set lets the waiting callers through, and shuts the gate, or not, for those that come then.
func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
	if shut {
		g.shut = make(chan struct{})
	}
}

func (g *gate) open() { g.set(false) }

// A stage is a node whose calls the test puts into one batch.
type stage struct {
	*testing.T
	f *nodetest.Server
	n *node
	g *gate

	auth []any // the user's name and password, if it is not the default
}

func newStage(t *testing.T, serve func(c *nodetest.Conn, cmd []string)) *stage {
	s := &stage{T: t, f: nodetest.NewInMemory(t, serve), g: &gate{at: make(chan struct{}, 1000)}}
	s.n = newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) {
		c, err := s.f.Dial(context.Background())
		if err != nil {
			return nil, err
		}
		conn := redis.NewConn(gated{c, s.g}, 0, 0)
		if s.auth != nil {
			if _, err := conn.Do("AUTH", s.auth...); err != nil {
				return nil, err
			}
		}
		return conn, nil
	}})
	t.Cleanup(s.g.open)
	return s
}

// gather makes those who ask from now on wait in the queue, behind a writer at work, until
// the gate opens.
func (s *stage) gather() {
	s.Helper()
	echo(s.T, s.n, "gate")
	s.g.set(true)
	go s.n.Do(s.Context(), soon(), "ECHO", "gate")
	receive(s.T, "a writer at the gate", s.g.at)
}

func (s *stage) queued() int {
	s.n.pipe.mu.Lock()
	defer s.n.pipe.mu.Unlock()
	return len(s.n.pipe.queue)
}

type outcome struct {
	reply any
	err   error
}

// start begins a call and returns when it waits in the queue.
func (s *stage) start(call func() (any, error)) <-chan outcome {
	s.Helper()
	c, place := make(chan outcome, 1), s.queued()+1
	go func() { r, err := call(); c <- outcome{r, err} }()
	verdict.Eventually(s.T, "one more in the queue", func() bool { return s.queued() == place })
	return c
}

// A teller is a caller of tell.
type teller struct {
	s   *stage
	who int
	c   <-chan outcome
}

// ask has tell called with arguments by which the caller's answer is known: one that callers share, and its own.
func (s *stage) ask(ctx context.Context, who int, shared, ownArg string) teller {
	s.Helper()
	return teller{s, who, s.start(func() (any, error) {
		return s.n.Eval(ctx, soon(), tell, tellKeys(who), shared, 5, ownArg, who)
	})}
}

// crew are n callers who may share a command.
func (s *stage) crew(n int) (all []teller) {
	s.Helper()
	for who := range n {
		all = append(all, s.ask(s.Context(), who, "s", "own"))
	}
	return all
}

func tellKeys(who int) []string { return []string{fmt.Sprint("a", who), fmt.Sprint("b", who)} }

func told(who int, shared, ownArg string) string {
	return fmt.Sprintf("a%d b%d %s 5 %s %d", who, who, shared, ownArg, who)
}

func (c teller) outcome() outcome {
	c.s.Helper()
	return receive(c.s.T, fmt.Sprint("return of caller ", c.who), c.c)
}

// gets fails the test unless the caller's answer is its own.
func (c teller) gets(shared, ownArg string) {
	c.s.Helper()
	o := c.outcome()
	if b, _ := o.reply.([]byte); o.err != nil || string(b) != told(c.who, shared, ownArg) {
		c.s.Errorf("caller %d = %q, %v, want %q", c.who, o.reply, o.err, told(c.who, shared, ownArg))
	}
}

func (c teller) fails(kinds ...error) error {
	c.s.Helper()
	err := c.outcome().err
	want(c.s.T, fmt.Sprint("caller ", c.who), err, kinds...)
	return err
}

// together is the command of callers of tell who differ in nothing but what is their own.
func together(cmd string, who ...int) string {
	line := []string{cmd, "tell", fmt.Sprint(2 * len(who))}
	each := func(format string) {
		for _, w := range who {
			line = append(line, strings.ReplaceAll(format, "#", fmt.Sprint(w)))
		}
	}
	each("a#")
	each("b#")
	line = append(line, "s", "5")
	each("own")
	each("#")
	return strings.Join(line, " ")
}

// saw returns what the server saw behind the gate, scripts by their names.
func (s *stage) saw() []string {
	names := strings.NewReplacer(
		tell.Hash(), tell.Name(), tell.Source(), tell.Name(), other.Hash(), other.Name(),
		release.Hash(), release.Name())
	var lines []string
	for _, l := range s.f.Log() {
		if !strings.HasSuffix(l, " ECHO gate") {
			lines = append(lines, names.Replace(l))
		}
	}
	return lines
}

func (s *stage) wantSaw(want ...string) {
	s.Helper()
	if got := s.saw(); !slices.Equal(got, want) {
		s.Fatalf("server saw\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestJointCommand(t *testing.T) {
	t.Parallel()
	bubbled(t, "layout", func(t *testing.T) {
		s := newStage(t, telling)
		s.gather()
		crew := s.crew(3)
		s.g.open()
		for _, c := range crew {
			c.gets("s", "own")
		}
		s.wantSaw("1 EVALSHA tell 6 a0 a1 a2 b0 b1 b2 s 5 own own own 0 1 2")

		// A caller alone has no array around its answer.
		s.gather()
		alone := s.ask(t.Context(), 7, "s", "own")
		s.g.open()
		alone.gets("s", "own")
		s.wantSaw("1 EVALSHA tell 6 a0 a1 a2 b0 b1 b2 s 5 own own own 0 1 2", "1 EVALSHA tell 2 a7 b7 s 5 own 7")
	})
	bubbled(t, "answers", func(t *testing.T) {
		s := newStage(t, telling)
		judgeAnswers(s)
		if got := s.saw(); len(got) != 1 || s.f.Dialled() != 1 {
			t.Errorf("server saw %q on %d connections, want one command on one", got, s.f.Dialled())
		}
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, telling)
		s.f.Addr = redistest.Shared(t).Addr()
		judgeAnswers(s)
	})
	bubbled(t, "limit", func(t *testing.T) {
		const callers = 2*mostJoined + 1
		s := newStage(t, telling)
		s.gather()
		crew := make([]teller, callers)
		for i := range crew {
			c := make(chan outcome, 1)
			crew[i] = teller{s, i, c}
			go func() {
				r, err := s.n.Eval(t.Context(), soon(), tell, tellKeys(i), "s", 5, "own", i)
				c <- outcome{r, err}
			}()
		}
		verdict.Eventually(t, "all in the queue", func() bool { return s.queued() == callers })
		s.g.open()
		for _, c := range crew {
			c.gets("s", "own")
		}
		var sizes []string
		for _, l := range s.saw() {
			sizes = append(sizes, strings.Fields(l)[3])
		}
		if want := []string{fmt.Sprint(2 * mostJoined), fmt.Sprint(2 * mostJoined), "2"}; !slices.Equal(sizes, want) {
			t.Errorf("commands of %v keys, want %v", sizes, want)
		}
	})
	t.Run("several", func(t *testing.T) { // commands in a batch, others in between
		t.Parallel()
		s := newStage(t, telling)
		s.gather()
		var crew []teller
		var echoes []<-chan outcome
		kind := func(i int) string {
			if i%6 == 5 { // more than are made up at a time
				return fmt.Sprint("s", 10+i)
			}
			return fmt.Sprint("s", i*i%7)
		}
		for i := range 18 {
			crew = append(crew, s.ask(t.Context(), i, kind(i), "own"))
			if i%6 == 2 {
				echoes = append(echoes, s.start(func() (any, error) { return s.n.Do(t.Context(), soon(), "ECHO", fmt.Sprint("e", i)) }))
			}
		}
		s.g.open()
		for i, c := range crew {
			c.gets(kind(i), "own")
		}
		for i, c := range echoes {
			if o := receive(t, "ECHO", c); fmt.Sprintf("%s", o.reply) != fmt.Sprint("e", 6*i+2) {
				t.Errorf("ECHO e%d = %q, %v", 6*i+2, o.reply, o.err)
			}
		}
	})
}

// judgeAnswers has several share a command who get answers of all kinds.
func judgeAnswers(s *stage) {
	s.Helper()
	s.gather()
	wishes := []string{"own", "refuse", "nil", "array", "mine", "raise"}
	crew := make([]teller, len(wishes))
	for i, wish := range wishes {
		crew[i] = s.ask(s.Context(), i, "s", wish)
	}
	s.g.open()
	crew[0].gets("s", "own")
	crew[4].gets("s", "mine")
	for _, i := range []int{1, 5} {
		if err := crew[i].fails(strategy.ErrRefused); !strings.Contains(err.Error(), "as you wish") {
			s.Errorf("caller %d = %v, want the script's words", i, err)
		}
	}
	if o := crew[2].outcome(); o.reply != nil || o.err != nil {
		s.Errorf("caller 2 = %v, %v, want nil, nil", o.reply, o.err)
	}
	if o := crew[3].outcome(); o.err != nil || fmt.Sprintf("%s", o.reply) != "[a3 %!s(int64=7)]" {
		s.Errorf("caller 3 = %s, %v, want [a3 7]", o.reply, o.err)
	}
}

func TestNotJoined(t *testing.T) {
	t.Parallel()
	type call struct {
		script *driver.Script
		keys   []string
		args   []any
	}
	keys := func(k ...string) []string { return k }
	plainTell := driver.NewScript("plain", tell.Source())
	calls := func(shared ...any) (both [2]call) {
		for i := range both {
			both[i] = call{tell, tellKeys(i), []any{shared[i], 5, "own", i}}
		}
		return both
	}
	for name, both := range map[string][2]call{
		"shared argument":       calls("s", "z"),
		"shared integer":        calls(1, 2),
		"shared int64":          calls(int64(1), int64(2)),
		"kinds of integers":     calls(1, int64(1)),
		"integer and string":    calls("1", 1),
		"shared bytes":          calls([]byte("s"), []byte("s")),
		"bytes and string":      calls([]byte("s"), "s"),
		"string and bytes":      calls("s", []byte("s")),
		"last shared argument":  {{tell, tellKeys(0), []any{"s", 5, "own", 0}}, {tell, tellKeys(1), []any{"s", 6, "own", 1}}},
		"number of keys":        {{tell, tellKeys(0), []any{"s", 5, "own", 0}}, {tell, keys("a1", "a2", "b1", "b2"), []any{"s", 5, "own", "own"}}},
		"number of arguments":   {{tell, tellKeys(0), []any{"s", 5, "own", 0}}, {tell, tellKeys(1), []any{"s", 5, "own", 1, 1}}},
		"keys and arguments":    {{tell, tellKeys(0), []any{"s", 5, "own", 0}}, {tell, keys("a1"), []any{"b0", "s", 5, "own", 1}}},
		"script":                {{tell, tellKeys(0), []any{"s", 5, "own", 0}}, {other, tellKeys(1), []any{"s", 5, "own", 1}}},
		"not joint":             {{plainTell, tellKeys(0), []any{"s", 5, "own", 0}}, {plainTell, tellKeys(1), []any{"s", 5, "own", 1}}},
		"joint and not":         {{tell, tellKeys(0), []any{"s", 5, "own", 0}}, {plainTell, tellKeys(1), []any{"s", 5, "own", 1}}},
		"argument that is nil":  calls(nil, nil),
		"argument that is true": calls(true, true),
		"argument with a point": calls(1.5, 1.5),
	} {
		bubbled(t, strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			s := newStage(t, func(c *nodetest.Conn, cmd []string) {
				if isScript(cmd) {
					c.Bulk(strings.Join(cmd[1:], " "))
					return
				}
				c.Plain(cmd)
			})
			s.gather()
			var got [2]<-chan outcome
			for i, c := range both {
				got[i] = s.start(func() (any, error) { return s.n.Eval(t.Context(), soon(), c.script, c.keys, c.args...) })
			}
			s.g.open()
			for i, c := range both {
				o := receive(t, "return", got[i])
				want := fmt.Sprint(c.script.Hash(), " ", len(c.keys), " ", strings.Join(c.keys, " "))
				for _, a := range c.args {
					want += " " + sentAs(a)
				}
				if b, _ := o.reply.([]byte); o.err != nil || string(b) != want {
					t.Errorf("caller %d had %q sent, %v, want %q", i, o.reply, o.err, want)
				}
			}
		})
	}

	// A caller that gives fewer arguments than are shared harms nobody.
	bubbled(t, "few_arguments", func(t *testing.T) {
		s := newStage(t, func(c *nodetest.Conn, cmd []string) {
			if isScript(cmd) {
				c.Say("*2\r\n:0\r\n:1\r\n")
				return
			}
			c.Plain(cmd)
		})
		s.gather()
		var got [2]<-chan outcome
		for i := range got {
			got[i] = s.start(func() (any, error) { return s.n.Eval(t.Context(), soon(), tell, tellKeys(i), "s") })
		}
		s.g.open()
		for i, c := range got {
			if o := receive(t, "return", c); o.reply != int64(i) || o.err != nil {
				t.Errorf("caller %d = %v, %v, want %d", i, o.reply, o.err, i)
			}
		}
		s.wantSaw("1 EVALSHA tell 4 a0 a1 b0 b1 s")
	})

	// A call that has learnt that the server lacks the script does not go by its hash again.
	bubbled(t, "EVAL", func(t *testing.T) {
		s := newStage(t, telling)
		s.gather()
		hashed := s.ask(t.Context(), 0, "s", "own")
		full := teller{s, 1, s.start(func() (any, error) {
			return s.n.eval(t.Context(), soon(), tell, "EVAL", tell.Source(), tellKeys(1), []any{"s", 5, "own", 1})
		})}
		s.g.open()
		hashed.gets("s", "own")
		full.gets("s", "own")
		s.wantSaw("1 "+together("EVALSHA", 0), "1 "+together("EVAL", 1))
	})

	// A command that only looks like one of a script is nobody's.
	bubbled(t, "Do", func(t *testing.T) {
		s := newStage(t, telling)
		s.gather()
		do := s.start(func() (any, error) {
			return s.n.Do(t.Context(), soon(), "EVALSHA", tell.Hash(), 2, "a0", "b0", "s", 5, "own", 0)
		})
		c := s.ask(t.Context(), 1, "s", "own")
		s.g.open()
		c.gets("s", "own")
		if o := receive(t, "Do", do); fmt.Sprintf("%s", o.reply) != told(0, "s", "own") {
			t.Errorf("Do = %q, %v, want %q", o.reply, o.err, told(0, "s", "own"))
		}
		s.wantSaw("1 "+together("EVALSHA", 0), "1 "+together("EVALSHA", 1))
	})
}

// sentAs is what redigo makes of an argument.
func sentAs(arg any) string {
	switch a := arg.(type) {
	case []byte:
		return string(a)
	case bool:
		return "1"
	case nil:
		return ""
	}
	return fmt.Sprint(arg)
}

// A caller that left before the bytes did has no place in the command, and the others have
// the answers of their own.
func TestJointCallerLeaves(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string][]int{
		"first":       {0},
		"middle":      {2},
		"last":        {4},
		"both_ends":   {0, 4},
		"all_but_one": {0, 1, 3, 4},
		"all":         {0, 1, 2, 3, 4},
	} {
		judge := func(t *testing.T, before func(s *stage), act func(s *stage)) {
			t.Parallel()
			s := newStage(t, telling)
			s.gather()
			before(s)
			cause := errors.New("I have to go")
			ctx, cancel := context.WithCancelCause(t.Context())
			var crew []teller
			var stay []int
			for who := range 5 {
				if slices.Contains(leave, who) {
					crew = append(crew, s.ask(ctx, who, "s", "own"))
				} else {
					crew = append(crew, s.ask(t.Context(), who, "s", "own"))
					stay = append(stay, who)
				}
			}
			next := s.ask(t.Context(), 9, "z", "own")
			act(s)
			cancel(cause)
			for _, who := range leave {
				crew[who].fails(strategy.ErrUnsent, cause)
			}
			s.g.open()
			for _, who := range stay {
				crew[who].gets("s", "own")
			}
			next.gets("z", "own")
			echo(t, s.n, "later")
			var want []string
			if len(stay) > 0 {
				want = append(want, "1 "+together("EVALSHA", stay...))
			}
			want = append(want, "1 EVALSHA tell 2 a9 b9 z 5 own 9", "1 ECHO later")
			if got := s.saw(); !slices.Equal(got[len(got)-len(want):], want) || s.f.Dialled() != 1 {
				t.Errorf("server saw on %d connections\n\t%s\nwant at the end\n\t%s", s.f.Dialled(), strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
			}
		}
		t.Run(name+"_in_the_queue", func(t *testing.T) {
			judge(t, func(*stage) {}, func(*stage) {})
		})
		// The batch is made up, and its writer does not get on with what is before them.
		t.Run(name+"_in_the_batch", func(t *testing.T) {
			big := strings.Repeat("x", 1<<16)
			judge(t, func(s *stage) {
				s.start(func() (any, error) { return s.n.Do(t.Context(), soon(), "ECHO", big) })
			}, func(s *stage) {
				s.g.set(true) // the writer before them has done
				receive(s.T, "their writer at the gate", s.g.at)
				if s.queued() != 0 {
					t.Error("the batch has not been made up")
				}
			})
		})
	}

	bubbled(t, "sent", func(t *testing.T) {
		held := make(chan func(), 10)
		s := newStage(t, func(c *nodetest.Conn, cmd []string) {
			if isScript(cmd) {
				held <- func() { perform(c, cmd) }
				return
			}
			c.Plain(cmd)
		})
		s.gather()
		var crew []teller
		var cancels []context.CancelCauseFunc
		for who := range 4 {
			ctx, cancel := context.WithCancelCause(t.Context())
			crew = append(crew, s.ask(ctx, who, "s", "own"))
			cancels = append(cancels, cancel)
		}
		next := s.ask(t.Context(), 9, "z", "own")
		s.g.open()
		answer, answerNext := receive(t, "the command", held), receive(t, "the next", held)
		cause := errors.New("I have to go")
		for _, who := range []int{0, 2} { // a goroutine reads for all, so that they may
			cancels[who](cause)
			crew[who].fails(strategy.ErrUnknown, cause)
		}
		answer()
		crew[1].gets("s", "own")
		crew[3].gets("s", "own")
		answerNext()
		next.gets("z", "own")
		echo(t, s.n, "later")
		s.wantSaw("1 "+together("EVALSHA", 0, 1, 2, 3), "1 EVALSHA tell 2 a9 b9 z 5 own 9", "1 ECHO later")
	})
}

// A reply that does not have an answer for each tells nothing, and what comes after it
// may be anybody's.
func TestJointReplyIsNotForAll(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]string{
		"status":   "+OK\r\n",
		"integer":  ":1\r\n",
		"bulk":     "$2\r\nab\r\n",
		"nil":      "$-1\r\n",
		"no_array": "*-1\r\n",
		"empty":    "*0\r\n",
		"short":    "*2\r\n:1\r\n:1\r\n",
		"long":     "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
		"nested":   "*1\r\n*3\r\n:1\r\n:1\r\n:1\r\n",
	} {
		bubbled(t, name, func(t *testing.T) {
			s := newStage(t, func(c *nodetest.Conn, cmd []string) {
				switch {
				case isScript(cmd) && c.ID == 1:
					c.Say("%s", said)
				default:
					telling(c, cmd)
				}
			})
			s.gather()
			crew := s.crew(3)
			s.g.open()
			for _, c := range crew {
				c.fails(strategy.ErrUnknown)
			}
			echo(t, s.n, "later")
			if got := s.saw(); got[len(got)-1] != "2 ECHO later" {
				t.Errorf("server saw %q, want the last on another connection", got)
			}
		})
	}
}

// An array is its caller's as soon as that has been woken: the reader, which looks for a
// READONLY in it, has done with it by then.
func TestArrayIsItsCallersAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] == "LIST" {
				c.Say("*3\r\n+a\r\n+b\r\n+%s\r\n", cmd[1])
				return
			}
			c.Plain(cmd)
		})
		n := newNode(t, poolOf(f))
		var wg sync.WaitGroup
		for c := range 16 {
			wg.Go(func() {
				for i := range 50 {
					own := fmt.Sprint(c, "-", i)
					if r, err := n.Do(t.Context(), soon(), "LIST", own); err != nil || fmt.Sprintf("%s", r) != "[a b "+own+"]" {
						t.Errorf("LIST %s = %s, %v", own, r, err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestJointRefusal(t *testing.T) {
	t.Parallel()
	bubbled(t, "any", func(t *testing.T) {
		s := newStage(t, func(c *nodetest.Conn, cmd []string) {
			if isScript(cmd) {
				c.Say("-OOM no memory\r\n")
				return
			}
			c.Plain(cmd)
		})
		s.gather()
		crew := s.crew(3)
		s.g.open()
		for _, c := range crew {
			err := c.fails(strategy.ErrRefused)
			var said redis.Error
			if !errors.As(err, &said) || said.Error() != "OOM no memory" {
				t.Errorf("caller %d = %v, want the server's words", c.who, err)
			}
		}
		echo(t, s.n, "later")
		s.wantSaw("1 "+together("EVALSHA", 0, 1, 2), "1 ECHO later")
	})

	bubbled(t, "NOSCRIPT", func(t *testing.T) {
		s := newStage(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] == "EVALSHA" {
				c.Say("-NOSCRIPT No matching script.\r\n")
				return
			}
			telling(c, cmd)
		})
		s.gather()
		crew := s.crew(3)
		s.g.open()
		for _, c := range crew {
			c.gets("s", "own")
		}
		got := s.saw()
		if got[0] != "1 "+together("EVALSHA", 0, 1, 2) {
			t.Errorf("server saw %q first, want them together", got[0])
		}
		for _, l := range got[1:] {
			if !strings.HasPrefix(l, "1 EVAL tell ") {
				t.Errorf("server saw %q, want EVAL", l)
			}
		}
	})

	t.Run("NOSCRIPT_Redis", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Own(t, redistest.Config{})
		s := newStage(t, telling)
		s.f.Addr = srv.Addr()
		for range 5 {
			if _, err := s.n.Do(t.Context(), soon(), "SCRIPT", "FLUSH"); err != nil {
				t.Fatal(err)
			}
			s.gather()
			crew := s.crew(8)
			s.g.open()
			for _, c := range crew {
				c.gets("s", "own")
			}
		}
	})

	bubbled(t, "CROSSSLOT", func(t *testing.T) {
		s := newStage(t, func(c *nodetest.Conn, cmd []string) {
			if isScript(cmd) && cmd[2] != "2" {
				c.Say("-CROSSSLOT Keys in request don't hash to the same slot\r\n")
				return
			}
			telling(c, cmd)
		})
		s.gather()
		crew := s.crew(3)
		s.g.open()
		for _, c := range crew {
			c.gets("s", "own")
		}
		one := []string{"1 " + together("EVALSHA", 0), "1 " + together("EVALSHA", 1), "1 " + together("EVALSHA", 2)}
		got := s.saw()
		if got[0] != "1 "+together("EVALSHA", 0, 1, 2) || !slices.Equal(slices.Sorted(slices.Values(got[1:])), one) {
			t.Errorf("server saw %q, want them together, then %q", got, one)
		}
		if !s.n.cluster.Load() {
			t.Error("cluster = false, want true")
		}

		// From then on nothing is joined.
		s.gather()
		crew = s.crew(3)
		s.g.open()
		for _, c := range crew {
			c.gets("s", "own")
		}
		s.wantSaw(slices.Concat(got, one)...)
	})

	// A script that a cluster refuses for its own keys is not asked for ever.
	bubbled(t, "CROSSSLOT_for_good", func(t *testing.T) {
		s := newStage(t, func(c *nodetest.Conn, cmd []string) {
			if isScript(cmd) {
				c.Say("-CROSSSLOT Keys in request don't hash to the same slot\r\n")
				return
			}
			c.Plain(cmd)
		})
		for round := range 2 {
			s.gather()
			crew := s.crew(2)
			s.g.open()
			for _, c := range crew {
				c.fails(strategy.ErrRefused)
			}
			if got, want := len(s.saw()), 3+2*round; got != want {
				t.Errorf("round %d: server saw %d commands, want %d: %q", round, got, want, s.saw())
			}
		}
	})

	// A name that one may not use does not keep the others from theirs.
	bubbled(t, "NOPERM", func(t *testing.T) {
		s := newStage(t, func(c *nodetest.Conn, cmd []string) {
			switch {
			case isScript(cmd) && slices.Contains(cmd, "a1"):
				c.Say("-NOPERM this user has no permissions to access one of the keys used as arguments\r\n")
			default:
				telling(c, cmd)
			}
		})
		first := []string{"1 " + together("EVALSHA", 0), "1 " + together("EVALSHA", 1), "1 " + together("EVALSHA", 2)}
		for round := range 2 {
			s.gather()
			crew := s.crew(3)
			s.g.open()
			crew[0].gets("s", "own")
			crew[2].gets("s", "own")
			crew[1].fails(strategy.ErrRefused)
			got := s.saw()[4*round:]
			if got[0] != "1 "+together("EVALSHA", 0, 1, 2) || !slices.Equal(slices.Sorted(slices.Values(got[1:])), first) {
				t.Errorf("round %d: server saw %q, want them together, then %q", round, got, first)
			}
		}
		// A caller that is refused what it asked for alone stays refused.
		s.gather()
		alone := s.ask(t.Context(), 1, "s", "own")
		s.g.open()
		alone.fails(strategy.ErrRefused)
		if got := s.saw()[8:]; len(got) != 1 {
			t.Errorf("server saw %q of a caller alone, want one command", got)
		}
	})
	t.Run("NOPERM_Redis", func(t *testing.T) {
		t.Parallel()
		needsKill(t, "that one who may not use a key does not keep others from theirs")
		srv := redistest.Own(t, redistest.Config{})
		admin := srv.Pool().Get()
		defer admin.Close()
		if _, err := admin.Do("ACL", "SETUSER", "limited", "on", ">pw", "~a0", "~b*", "~a2", "+@all"); err != nil {
			t.Fatal(err)
		}
		s := newStage(t, telling)
		s.f.Addr = srv.Addr()
		s.auth = []any{"limited", "pw"}
		s.gather()
		crew := s.crew(3)
		s.g.open()
		crew[0].gets("s", "own")
		crew[2].gets("s", "own")
		if err := crew[1].fails(strategy.ErrRefused); !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("caller 1 = %v, want the server's words", err)
		}
	})

	bubbled(t, "READONLY_whole", func(t *testing.T) {
		judgeReadOnly(t, "-READONLY You can't write against a read only replica.\r\n", 3)
	})
	bubbled(t, "READONLY_of_one", func(t *testing.T) {
		judgeReadOnly(t, "*3\r\n:7\r\n-READONLY You can't write against a read only replica.\r\n:7\r\n", 1)
	})
}

// judgeReadOnly has a server say that it cannot write, to as many of three callers: their calls alone are
// sent again, on another connection.
func judgeReadOnly(t *testing.T, said string, refused int) {
	t.Helper()
	s := newStage(t, func(c *nodetest.Conn, cmd []string) {
		if isScript(cmd) && c.ID == 1 {
			c.Say("%s", said)
			return
		}
		telling(c, cmd)
	})
	s.gather()
	crew := s.crew(3)
	s.g.open()
	again := 0
	for _, c := range crew {
		switch o := c.outcome(); {
		case o.err == nil && fmt.Sprintf("%s", o.reply) == told(c.who, "s", "own"):
			again++
		case o.err != nil || o.reply != int64(7):
			t.Errorf("caller %d = %v, %v, want an answer of either connection", c.who, o.reply, o.err)
		}
	}
	if again != refused {
		t.Errorf("%d callers were answered on another connection, want %d: who was refused", again, refused)
	}
	saw := s.saw()
	if saw[0] != "1 "+together("EVALSHA", 0, 1, 2) || slices.ContainsFunc(saw[1:], func(l string) bool { return !strings.HasPrefix(l, "2 ") }) {
		t.Errorf("server saw %q, want one command on the first connection", saw)
	}
}

// A server that does not introduce itself may be a proxy, which sends a script to where
// its first key belongs: nothing is joined there, not even what was queued before that
// was known.
func TestNothingIsJoinedBehindAProxy(t *testing.T) {
	t.Parallel()
	for _, refuse := range []string{"CLIENT INFO", "CLIENT KILL"} {
		bubbled(t, strings.ReplaceAll(refuse, " ", "_"), func(t *testing.T) {
			let := make(chan struct{})
			s := newStage(t, func(c *nodetest.Conn, cmd []string) {
				if strings.HasPrefix(strings.Join(cmd, " "), refuse) {
					<-let
					c.Say("-ERR unknown command\r\n")
					return
				}
				telling(c, cmd)
			})
			crew := s.crew(3)
			close(let)
			for _, c := range crew {
				c.gets("s", "own")
			}
			first := []string{"1 " + together("EVALSHA", 0), "1 " + together("EVALSHA", 1), "1 " + together("EVALSHA", 2)}
			s.wantSaw(first...)
			s.gather()
			crew = s.crew(3)
			s.g.open()
			for _, c := range crew {
				c.gets("s", "own")
			}
			s.wantSaw(slices.Concat(first, first)...)
		})
	}
}

// A connection that breaks leaves those unknown whose command may have left, and no others.
func TestConnectionLostInAJointCommand(t *testing.T) {
	t.Parallel()
	bubbled(t, "writing", func(t *testing.T) {
		s := newStage(t, telling)
		s.gather()
		big := strings.Repeat("x", 1<<16)
		halfSent := []teller{s.ask(t.Context(), 7, big, "own"), s.ask(t.Context(), 8, big, "own")}
		crew := s.crew(2)
		cause := errors.New("I have to go")
		ctx, cancel := context.WithCancelCause(t.Context())
		left := s.ask(ctx, 2, "s", "own")
		crew = append(crew, s.ask(t.Context(), 3, "s", "own"))
		s.g.set(true)
		receive(t, "the writer at the gate", s.g.at)
		cancel(cause)
		left.fails(strategy.ErrUnsent, cause)
		s.n.pipe.mu.Lock()
		conn := s.n.pipe.wire.conn
		s.n.pipe.mu.Unlock()
		conn.Close()
		s.g.open()
		for _, c := range halfSent {
			c.fails(strategy.ErrUnknown)
		}
		for _, c := range crew {
			c.gets("s", "own")
		}
		s.wantSaw("2 CLIENT KILL ID 1 ADDR client:1", "2 "+together("EVALSHA", 0, 1, 3))
	})
	bubbled(t, "reading", func(t *testing.T) {
		s := newStage(t, func(c *nodetest.Conn, cmd []string) {
			if isScript(cmd) && c.ID == 1 {
				c.Say("*3\r\n:1\r\n:1\r\n")
				c.Close()
				return
			}
			telling(c, cmd)
		})
		s.gather()
		crew := s.crew(3)
		s.g.open()
		for _, c := range crew {
			c.fails(strategy.ErrUnknown, io.EOF)
		}
		echo(t, s.n, "later")
		s.wantSaw("1 "+together("EVALSHA", 0, 1, 2), "2 CLIENT KILL ID 1 ADDR client:1", "2 ECHO later")
	})
	bubbled(t, "due", func(t *testing.T) {
		s := newStage(t, func(c *nodetest.Conn, cmd []string) {
			if !isScript(cmd) {
				c.Plain(cmd)
			}
		})
		s.gather()
		var outs []<-chan outcome
		for who := range 2 {
			outs = append(outs, s.start(func() (any, error) {
				return s.n.Eval(t.Context(), time.Now().Add(time.Second), tell, tellKeys(who), "s", 5, "own", who)
			}))
		}
		s.g.open()
		for _, out := range outs {
			want(t, "a caller of a joint command", receive(t, "return", out).err, strategy.ErrUnknown)
		}
		echo(t, s.n, "later")
		s.wantSaw("1 "+together("EVALSHA", 0, 1), "2 CLIENT KILL ID 1 ADDR client:1", "2 ECHO later")
	})
	bubbled(t, "Close", func(t *testing.T) {
		s := newStage(t, func(c *nodetest.Conn, cmd []string) {
			if !isScript(cmd) {
				c.Plain(cmd)
			}
		})
		s.gather()
		crew := s.crew(3)
		s.g.open()
		verdict.Eventually(t, "the command", func() bool { return len(s.saw()) == 1 })
		s.n.Close()
		for _, c := range crew {
			c.fails(strategy.ErrUnknown, strategy.ErrClosed)
		}
	})
}

// A mob is many callers who come and leave as they like.
type mob struct {
	n                        *node
	callers, calls           int
	answered, unsent, unsure atomic.Int64
	sure                     sync.Map // what became of each: nil, or ErrUnsent
}

// run has each call check that its answer is its own.
func (m *mob) run(t *testing.T) {
	var wg sync.WaitGroup
	for c := range m.callers {
		wg.Go(func() {
			for i := range m.calls {
				ctx, cancel := t.Context(), func() {}
				if rand.N(2) == 0 {
					ctx, cancel = context.WithTimeout(ctx, rand.N(2*time.Millisecond))
				}
				m.call(t, ctx, c*m.calls+i)
				cancel()
			}
		})
	}
	wg.Wait()
}

func (m *mob) call(t *testing.T, ctx context.Context, who int) {
	script, shared, own := tell, fmt.Sprint("s", rand.N(2)), "own"
	if rand.N(4) == 0 {
		script = other
	}
	if rand.N(16) == 0 {
		own = []string{"refuse", "nil", "array"}[rand.N(3)]
	}
	var reply any
	var err error
	wanted := told(who, shared, own)
	if rand.N(8) == 0 {
		reply, err = m.n.Do(ctx, soon(), "ECHO", wanted)
		own = ""
	} else {
		reply, err = m.n.Eval(ctx, soon(), script, tellKeys(who), shared, 5, own, who)
	}
	switch {
	case own == "refuse" && errors.Is(err, strategy.ErrRefused):
		m.answered.Add(1)
	case errors.Is(err, strategy.ErrUnsent):
		m.unsent.Add(1)
		m.sure.Store(wanted, err)
	case errors.Is(err, strategy.ErrUnknown):
		m.unsure.Add(1)
	case err != nil:
		t.Errorf("caller %d = %v", who, err)
	default:
		m.answered.Add(1)
		m.sure.Store(wanted, nil)
		ok := false
		switch b, _ := reply.([]byte); own {
		case "refuse":
		case "nil":
			ok = reply == nil
		case "array":
			ok = fmt.Sprintf("%s", reply) == fmt.Sprintf("[a%d %%!s(int64=7)]", who)
		default:
			ok = string(b) == wanted
		}
		if !ok {
			t.Errorf("caller %d, who asked for %q, = %q", who, wanted, reply)
		}
	}
}

// Callers that come and go mix nothing up, and what they hear is true.
func TestJointChaos(t *testing.T) {
	t.Parallel()
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		if redistest.ForTests(t).Kind() == redistest.Embedded {
			t.Skip("NOT PROVEN: that calls are joined on a server: the embedded one answers so late that few calls wait for the answer")
		}
		srv := redistest.Own(t, redistest.Config{})
		var dials atomic.Int32
		pool := plainPool(t, srv, 0)
		dial := pool.Dial
		pool.Dial = func() (redis.Conn, error) { dials.Add(1); return dial() }
		m := mob{n: newNode(t, pool), callers: 64, calls: 200}
		echo(t, m.n, "dialled")
		m.run(t)
		calls, err := srv.Calls(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d answered, %d unsent, %d unknown; %d commands", m.answered.Load(), m.unsent.Load(), m.unsure.Load(), calls["evalsha"])
		if m.unsent.Load()+m.unsure.Load() == 0 || int64(calls["evalsha"]) > m.answered.Load()/2 {
			t.Error("nobody left, or too few were joined: nothing was tested")
		}
		if got := dials.Load(); got != 1 {
			t.Errorf("%d connections, want 1: cancellation costs none", got)
		}
	})

	// The server hangs up now and then, before or after it has done what it was asked.
	t.Run("cuts", func(t *testing.T) {
		t.Parallel()
		var mu sync.Mutex
		done, commands, joined := map[string]int{}, 0, 0
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if !isScript(cmd) {
				telling(c, cmd)
				return
			}
			mu.Lock()
			commands++
			how := commands % 100
			if count, _ := strconv.Atoi(cmd[2]); how != 0 {
				n, keys, args := count/2, cmd[3:3+count], cmd[3+count:]
				for i := range n {
					done[strings.Join([]string{keys[i], keys[n+i], args[0], args[1], args[2+i], args[2+n+i]}, " ")]++
				}
				if n > 1 {
					joined++
				}
			}
			mu.Unlock()
			if how == 0 || how == 50 {
				c.Close()
				return
			}
			perform(c, cmd)
		})
		m := mob{n: newNode(t, poolOf(f)), callers: 64, calls: 100}
		m.run(t)
		m.n.Close()
		f.Cut()
		mu.Lock()
		defer mu.Unlock()
		t.Logf("%d answered, %d unsent, %d unknown; %d commands, %d of several; %d connections",
			m.answered.Load(), m.unsent.Load(), m.unsure.Load(), commands, joined, f.Dialled())
		if joined == 0 || commands < 100 {
			t.Error("nothing was joined, or cut: nothing was tested")
		}
		for what, times := range done {
			if times > 1 {
				t.Errorf("%q was done %d times", what, times)
			}
			if err, ok := m.sure.Load(what); ok && err != nil {
				t.Errorf("%q was done, and its caller told %v", what, err)
			}
		}
	})
}
