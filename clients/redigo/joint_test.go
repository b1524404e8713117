// Joint commands: who shares one, who gets which reply, and what becomes of those who leave.
package redigonode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/strategy"
)

// tell is a joint script of two keys, two shared arguments, and two of one's own: it tells
// each what it was called with, unless the first of its own asks for something else. See telling.
var tell, other = driver.NewJointScript("tell", 2, "tell"), driver.NewJointScript("other", 2, "other")

// telling answers all as a healthy server would, and a script as tell.
func telling(c *nodetest.Conn, cmd []string) {
	if !isScript(cmd) {
		c.Plain(cmd)
		return
	}
	count, _ := strconv.Atoi(cmd[2])
	n, keys, args := count/2, cmd[3:3+count], cmd[3+count:]
	if n > 1 {
		c.Say("*%d\r\n", n)
	}
	for i := range n {
		switch own := args[2+i]; own {
		case "refuse":
			c.Say("-ERR as you wish\r\n")
		case "nil":
			c.Say("$-1\r\n")
		case "array":
			c.Say("*2\r\n+%s\r\n:7\r\n", keys[i])
		default:
			c.Bulk(strings.Join([]string{keys[i], keys[n+i], args[0], args[1], own, args[2+n+i]}, " "))
		}
	}
}

// isScript reports whether a command runs one.
func isScript(cmd []string) bool { return cmd[0] == "EVALSHA" || cmd[0] == "EVAL" }

// A stage is a node in a bubble whose calls the test puts into one batch.
type stage struct {
	*testing.T
	n *node
	f *nodetest.Server

	seen  int // lines of the server's log
	mu    sync.Mutex
	gates map[string]chan struct{}
}

func newStage(t *testing.T, serve func(c *nodetest.Conn, cmd []string)) *stage {
	s := &stage{T: t, f: nodetest.NewInMemory(t, serve), gates: map[string]chan struct{}{}}
	s.n = newNode(t, hook(s.f, func(h *hooked) {
		h.send = func(c redis.ConnWithTimeout, cmd string, args ...any) error {
			if gate := s.gate(args); gate != nil {
				<-gate
			}
			if slices.Contains(args, any("breaks")) {
				return io.ErrClosedPipe
			}
			return c.Send(cmd, args...)
		}
	}))
	return s
}

func (s *stage) gate(args []any) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gates[fmt.Sprint(args...)]
}

// shut has a writer wait at this text. A caller that asks from now on waits in the queue behind it, until open lets the
// text be written.
func (s *stage) shut(text string) (open func()) {
	s.Helper()
	if len(s.gates) == 0 {
		echo(s.T, s.n, "dialled")
	}
	gate := make(chan struct{})
	s.mu.Lock()
	s.gates[text] = gate
	s.mu.Unlock()
	begin(s.n, s.Context(), soon(), "ECHO", text)
	synctest.Wait()
	return func() { close(gate); synctest.Wait() }
}

// A teller is a caller of tell.
type teller struct {
	s     *stage
	who   int
	reply any
	err   error
	ended chan struct{}
}

// ask has tell called with arguments by which the caller's answer is known: one that callers share, and its own. The
// call waits in the queue then.
func (s *stage) ask(ctx context.Context, who int, shared, wish string) *teller {
	s.Helper()
	c := &teller{s: s, who: who, ended: make(chan struct{})}
	go func() {
		c.reply, c.err = s.n.Eval(ctx, soon(), tell, tellKeys(who), shared, 5, wish, who)
		close(c.ended)
	}()
	synctest.Wait()
	return c
}

// crew are n callers who may share a command.
func (s *stage) crew(n int) (all []*teller) {
	s.Helper()
	for who := range n {
		all = append(all, s.ask(s.Context(), who, "s", "own"))
	}
	return all
}

// batch are n callers whose calls have been sent together.
func (s *stage) batch(n int) []*teller {
	s.Helper()
	open := s.shut(fmt.Sprint("gate ", len(s.gates)))
	crew := s.crew(n)
	open()
	return crew
}

// eachGetsIts fails the test unless each caller's answer is its own.
func eachGetsIts(crew []*teller) {
	for _, c := range crew {
		c.s.Helper()
		c.gets("s", "own")
	}
}

func tellKeys(who int) []string { return []string{fmt.Sprint("a", who), fmt.Sprint("b", who)} }

func told(who int, shared, wish string) string {
	return fmt.Sprintf("a%d b%d %s 5 %s %d", who, who, shared, wish, who)
}

// gets fails the test unless the caller's answer is its own.
func (c *teller) gets(shared, wish string) {
	c.s.Helper()
	receive(c.s.T, fmt.Sprint("return of caller ", c.who), c.ended)
	if b, _ := c.reply.([]byte); c.err != nil || string(b) != told(c.who, shared, wish) {
		c.s.Errorf("caller %d = %q, %v, want %q", c.who, c.reply, c.err, told(c.who, shared, wish))
	}
}

func (c *teller) fails(words string, kinds ...error) {
	c.s.Helper()
	receive(c.s.T, fmt.Sprint("return of caller ", c.who), c.ended)
	if want(c.s.T, fmt.Sprint("caller ", c.who), c.err, kinds...); !strings.Contains(c.err.Error(), words) {
		c.s.Errorf("caller %d = %v, want %q in it", c.who, c.err, words)
	}
}

// together is the command of callers of tell who differ in nothing but what is their own.
func together(who ...int) string {
	var a, b, own, last []string
	for _, w := range who {
		a, b, own, last = append(a, fmt.Sprint("a", w)), append(b, fmt.Sprint("b", w)), append(own, "own"), append(last, fmt.Sprint(w))
	}
	line := slices.Concat([]string{"1 EVALSHA tell", fmt.Sprint(2 * len(who))}, a, b, []string{"s", "5"}, own, last)
	return strings.Join(line, " ")
}

// each are the commands of those callers, each its own.
func each(who ...int) (lines []string) {
	for _, w := range who {
		lines = append(lines, together(w))
	}
	return lines
}

// saw returns what the server has seen since the last call but ECHO, scripts by their names.
func (s *stage) saw() []string {
	names := strings.NewReplacer(tell.Hash(), tell.Name(), tell.Source(), tell.Name())
	var lines []string
	log := s.f.Log()
	for _, l := range log[s.seen:] {
		if !strings.Contains(l, " ECHO ") {
			lines = append(lines, names.Replace(l))
		}
	}
	s.seen = len(log)
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
	bubbled(t, "answers", func(t *testing.T) {
		s := newStage(t, telling)
		open := s.shut("gate")
		var crew []*teller
		for i, wish := range []string{"own", "refuse", "nil", "array", "mine"} {
			crew = append(crew, s.ask(t.Context(), i, "s", wish))
		}
		open()
		crew[0].gets("s", "own")
		crew[1].fails("as you wish", strategy.ErrRefused)
		if c := crew[2]; c.reply != nil || c.err != nil {
			t.Errorf("caller 2 = %v, %v, want nil, nil", c.reply, c.err)
		}
		if c := crew[3]; c.err != nil || fmt.Sprintf("%s", c.reply) != "[a3 %!s(int64=7)]" {
			t.Errorf("caller 3 = %s, %v, want [a3 7]", c.reply, c.err)
		}
		crew[4].gets("s", "mine")
		s.wantSaw("1 EVALSHA tell 10 a0 a1 a2 a3 a4 b0 b1 b2 b3 b4 s 5 own refuse nil array mine 0 1 2 3 4")
		s.ask(t.Context(), 7, "s", "own").gets("s", "own") // a caller alone has no array around its answer
		s.wantSaw(together(7))
	})
	bubbled(t, "limit", func(t *testing.T) {
		s := newStage(t, telling)
		crew := s.batch(2*mostJoined + 1)
		eachGetsIts(crew)
		var sizes []string
		for _, l := range s.saw() {
			sizes = append(sizes, strings.Fields(l)[3])
		}
		if want := []string{fmt.Sprint(2 * mostJoined), fmt.Sprint(2 * mostJoined), "2"}; !slices.Equal(sizes, want) {
			t.Errorf("commands of %v keys, want %v", sizes, want)
		}
	})
}

// Calls share a command that are alike in all but what is each one's own.
func TestWhoJoins(t *testing.T) {
	t.Parallel()
	scripted := func(s *driver.Script, cmd string, keys int, args ...any) *op {
		o := (&node{}).scriptOp(cmd, s.HashArg(), soon(), make([]string, keys), args)
		o.script = s
		return o
	}
	for name, c := range map[string]struct {
		other *op
		joins bool
	}{
		"alike":               {scripted(tell, "EVALSHA", 2, "s", 5, "own", 1), true},
		"shared argument":     {scripted(tell, "EVALSHA", 2, "z", 5, "own", 1), false},
		"last of the shared":  {scripted(tell, "EVALSHA", 2, "s", 6, "own", 1), false},
		"number of keys":      {scripted(tell, "EVALSHA", 4, "s", 5, "own", 1), false},
		"number of arguments": {scripted(tell, "EVALSHA", 2, "s", 5, "own", 1, 1), false},
		"keys and arguments":  {scripted(tell, "EVALSHA", 1, "s", 5, "own", 1, 1), false},
		"script":              {scripted(other, "EVALSHA", 2, "s", 5, "own", 1), false},
		"in full":             {scripted(tell, "EVAL", 2, "s", 5, "own", 1), false}, // it has learnt that the server lacks the script
		"few arguments":       {scripted(tell, "EVALSHA", 2, "s"), false},
	} {
		if got := scripted(tell, "EVALSHA", 2, "s", 5, "own", 0).joins(c.other); got != c.joins {
			t.Errorf("%s: joins = %v, want %v", name, got, c.joins)
		}
	}
	for _, c := range []struct {
		a, b any
		same bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"1", 1, false}, {1, 1, true}, {1, 2, false}, {0, "", false}, {"s", []byte("s"), false},
		{[]byte("s"), []byte("s"), false}, {[]byte("s"), "s", false}, {nil, nil, false}, {true, true, false},
		{int64(1), int64(1), true}, {int64(1), int64(2), false}, {int64(0), 0, false}, {1, int64(1), false}, {1.5, 1.5, false},
	} {
		if got := scripted(tell, "EVALSHA", 2, c.a, 5, "x", 0).joins(scripted(tell, "EVALSHA", 2, c.b, 5, "y", 0)); got != c.same {
			t.Errorf("a shared %T %v and %T %v: joins = %v, want %v", c.a, c.a, c.b, c.b, got, c.same)
		}
	}
	// Callers that give fewer arguments than are shared harm nobody.
	few := []*op{scripted(tell, "EVALSHA", 2, "s"), scripted(tell, "EVALSHA", 2, "s")}
	if args := jointArgs(nil, few); !few[0].joins(few[1]) || !slices.Equal(args, []any{tell.HashArg(), 4, "", "", "", "", "s"}) {
		t.Errorf("two callers with one argument each send %v", args)
	}
	// Calls that were to share a command on a connection that broke may have to go alone on the next.
	batch := []*op{few[0], few[1], scripted(tell, "EVALSHA", 2, "s")}
	if join(nil, batch, true); batch[1].lead != batch[0] || batch[0].nextSharing != batch[1] {
		t.Error("ops of a joint script do not share a command")
	}
	if got := join(nil, batch[1:], false); len(got) != 2 || got[0].lead != nil || got[0].nextSharing != nil {
		t.Errorf("join where none may = %d ops, the first led by %p, want 2, alone", len(got), got[0].lead)
	}
}

// A script that is not joint, and a command that only looks like one of a script, go alone.
func TestNotJoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStage(t, telling)
		open := s.shut("gate")
		crew := s.crew(1)
		plain, outs := driver.NewScript("plain", tell.Source()), []chan error{nil}
		for who := 1; who < 4; who++ {
			out, args := make(chan error, 1), []any{"s", 5, "own", who}
			outs = append(outs, out)
			go func() {
				if who == 1 {
					out <- outcome(s.n.Do(t.Context(), soon(), "EVALSHA", tell.Hash(), append([]any{2, "a1", "b1"}, args...)...))
				} else {
					out <- outcome(s.n.Eval(t.Context(), soon(), plain, tellKeys(who), args...))
				}
			}()
			synctest.Wait()
		}
		open()
		crew[0].gets("s", "own")
		for who := 1; who < 4; who++ {
			wantReply(t, outs[who], told(who, "s", "own"))
		}
		s.wantSaw(each(0, 1, 2, 3)...)
	})
}

// A caller that left before the bytes did has no place in the command, and the others have
// the answers of their own.
func TestJointCallerLeaves(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string][]int{
		"first": {0}, "middle": {2}, "both ends": {0, 4}, "all but one": {0, 1, 3, 4}, "all": {0, 1, 2, 3, 4},
	} {
		for _, from := range []string{"queue", "batch"} {
			bubbled(t, name+" from the "+from, func(t *testing.T) {
				s := newStage(t, telling)
				open := s.shut("gate")
				openNext := s.shut("before them")
				cause := errors.New("I have to go")
				ctx, cancel := context.WithCancelCause(t.Context())
				var crew []*teller
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
				if from == "batch" { // the batch is made up, and its writer does not get on with what is before them
					open()
				}
				cancel(cause)
				for _, who := range leave {
					crew[who].fails("", strategy.ErrUnsent, cause)
				}
				if from == "queue" {
					open()
				}
				openNext()
				for _, who := range stay {
					crew[who].gets("s", "own")
				}
				next.gets("z", "own")
				echo(t, s.n, "later")
				seen := []string{"1 EVALSHA tell 2 a9 b9 z 5 own 9"}
				if len(stay) > 0 {
					seen = append([]string{together(stay...)}, seen...)
				}
				s.wantSaw(seen...)
				wantDials(t, s.f, 1)
			})
		}
	}
	bubbled(t, "sent", func(t *testing.T) {
		held := make(chan func(), 10)
		s := newStage(t, func(c *nodetest.Conn, cmd []string) {
			if isScript(cmd) {
				held <- func() { telling(c, cmd) }
				return
			}
			c.Plain(cmd)
		})
		open := s.shut("gate")
		ctx, cancel := context.WithCancelCause(t.Context())
		stay, left := s.ask(t.Context(), 0, "s", "own"), s.ask(ctx, 1, "s", "own")
		stayToo, next := s.ask(t.Context(), 2, "s", "own"), s.ask(t.Context(), 9, "z", "own")
		open()
		answer, answerNext := receive(t, "the command", held), receive(t, "the next", held)
		cause := errors.New("I have to go")
		cancel(cause) // a goroutine reads for all, so that it may leave
		left.fails("", strategy.ErrUnknown, cause)
		answer()
		stay.gets("s", "own")
		stayToo.gets("s", "own")
		answerNext()
		next.gets("z", "own")
		s.wantSaw(together(0, 1, 2), "1 EVALSHA tell 2 a9 b9 z 5 own 9")
	})
}

// A reply that does not have an answer for each tells nothing, and what comes after it may be anybody's.
func TestJointReplyIsNotForAll(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]string{
		"status": "+OK\r\n", "no array": "*-1\r\n", "empty": "*0\r\n", "short": "*2\r\n:1\r\n:1\r\n", "long": "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
	} {
		bubbled(t, name, func(t *testing.T) {
			s := newStage(t, func(c *nodetest.Conn, cmd []string) {
				if isScript(cmd) && c.ID == 1 {
					c.Say("%s", said)
					return
				}
				telling(c, cmd)
			})
			crew := s.batch(3)
			for _, c := range crew {
				c.fails("", strategy.ErrUnknown)
			}
			if echo(t, s.n, "later"); s.f.Dialled() != 2 {
				t.Errorf("%d connections, want another", s.f.Dialled())
			}
		})
	}
}

func sorted(lines []string) []string { return slices.Sorted(slices.Values(lines)) }

// A request that is refused because of another's keys is sent again alone. Any other refusal is everybody's.
func TestJointRefusal(t *testing.T) {
	t.Parallel()
	all, one := together(0, 1, 2), each(0, 1, 2)
	const crossSlot = "-CROSSSLOT Keys in request don't hash to the same slot\r\n"
	const noperm = "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n"
	for name, c := range map[string]struct {
		said    string
		to      func(cmd []string) bool
		refused []int
		rounds  [2][]string
	}{
		"of all": {"-OOM no memory\r\n", isScript, []int{0, 1, 2}, [2][]string{{all}, {all}}},
		// From then on nothing is joined.
		"several slots": {crossSlot, func(cmd []string) bool { return isScript(cmd) && cmd[2] != "2" },
			nil, [2][]string{append([]string{all}, one...), one}},
		// A script that a cluster refuses for its own keys is not asked for ever.
		"own slots": {crossSlot, isScript,
			[]int{0, 1, 2}, [2][]string{append([]string{all}, one...), one}},
		// A name that one may not use does not keep the others from theirs.
		"a key": {noperm, func(cmd []string) bool { return isScript(cmd) && slices.Contains(cmd, "a1") },
			[]int{1}, [2][]string{append([]string{all}, one...), append([]string{all}, one...)}},
	} {
		bubbled(t, name, func(t *testing.T) {
			s := newStage(t, func(conn *nodetest.Conn, cmd []string) {
				if c.to(cmd) {
					conn.Say("%s", c.said)
					return
				}
				telling(conn, cmd)
			})
			for round, seen := range c.rounds {
				crew := s.batch(3)
				for who, caller := range crew {
					var said redis.Error
					if slices.Contains(c.refused, who) {
						if caller.fails(strings.TrimSpace(c.said[1:]), strategy.ErrRefused); !errors.As(caller.err, &said) {
							t.Errorf("caller %d = %v, want the redis.Error in it", who, caller.err)
						}
					} else {
						caller.gets("s", "own")
					}
				}
				got := s.saw()
				if seen[0] == all && got[0] != all || !slices.Equal(sorted(got), sorted(seen)) {
					t.Errorf("round %d: server saw %q, want %q", round, got, seen)
				}
			}
			if name == "a key" { // who is refused what it asked for alone stays refused
				s.ask(t.Context(), 1, "s", "own").fails("NOPERM", strategy.ErrRefused)
				s.wantSaw(together(1))
			}
		})
	}
	// A request that a replica refuses is sent again, alone of those who shared the command, on another connection.
	const readOnly = "-READONLY You can't write against a read only replica.\r\n"
	for refused, said := range map[int]string{3: readOnly, 1: "*3\r\n:7\r\n" + readOnly + ":7\r\n"} {
		bubbled(t, fmt.Sprint("READONLY of ", refused), func(t *testing.T) {
			s := newStage(t, func(c *nodetest.Conn, cmd []string) {
				if isScript(cmd) && c.ID == 1 {
					c.Say("%s", said)
					return
				}
				telling(c, cmd)
			})
			crew := s.batch(3)
			for who, c := range crew {
				if refused == 3 || who == 1 {
					c.gets("s", "own")
				} else if c.err != nil || c.reply != int64(7) {
					t.Errorf("caller %d = %v, %v, want 7 of the first connection", who, c.reply, c.err)
				}
			}
			saw := s.saw()
			if saw[0] != all || slices.ContainsFunc(saw[1:], func(l string) bool { return !strings.HasPrefix(l, "2 ") }) {
				t.Errorf("server saw %q, want one command on the first connection", saw)
			}
		})
	}
}

// A server that does not introduce itself may be a proxy, which sends a script to where its first key belongs: nothing is
// joined there, not even what was queued before that was known.
func TestNothingIsJoinedBehindAProxy(t *testing.T) {
	t.Parallel()
	for _, refuse := range []string{"CLIENT INFO", "CLIENT KILL"} {
		bubbled(t, refuse, func(t *testing.T) {
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
			synctest.Wait()
			open := s.shut("gate")
			crew = append(crew, s.crew(3)...)
			open()
			eachGetsIts(crew)
			s.wantSaw(each(0, 1, 2, 0, 1, 2)...)
		})
	}
}

// A connection that breaks leaves those unknown whose command may have left, and no others. It is given up when a joint
// command is not answered in time.
func TestConnectionLostInAJointCommand(t *testing.T) {
	t.Parallel()
	bubbled(t, "due", func(t *testing.T) {
		s := newStage(t, func(c *nodetest.Conn, cmd []string) {
			if !isScript(cmd) {
				c.Plain(cmd)
			}
		})
		open := s.shut("gate")
		ended := make(chan error, 2)
		for who := range 2 {
			go func() {
				_, err := s.n.Eval(t.Context(), time.Now().Add(time.Second), tell, tellKeys(who), "s", 5, "own", who)
				ended <- err
			}()
			synctest.Wait()
		}
		open()
		wantFailed(t, "a caller of a joint command", ended, strategy.ErrUnknown)
		wantFailed(t, "the other", ended, strategy.ErrUnknown)
		echo(t, s.n, "later")
		s.wantSaw(together(0, 1), "2 CLIENT KILL ID 1 ADDR client:1")
	})
	bubbled(t, "writing", func(t *testing.T) {
		s := newStage(t, telling)
		open := s.shut("gate")
		halfSent := []*teller{s.ask(t.Context(), 7, "breaks", "own"), s.ask(t.Context(), 8, "breaks", "own")}
		crew := s.crew(2)
		ctx, cancel := context.WithCancelCause(t.Context())
		left := s.ask(ctx, 2, "s", "own")
		crew = append(crew, s.ask(t.Context(), 3, "s", "own"))
		cause := errors.New("I have to go")
		cancel(cause)
		left.fails("", strategy.ErrUnsent, cause)
		open()
		for _, c := range halfSent {
			c.fails("", strategy.ErrUnknown, io.ErrClosedPipe)
		}
		eachGetsIts(crew)
		s.wantSaw("2 CLIENT KILL ID 1 ADDR client:1", "2"+together(0, 1, 3)[1:])
	})
}

// anyCall makes a call of a random kind, which may leave, and returns what it asked for and its outcome: nil if the answer is its own.
func anyCall(ctx context.Context, n *node, who int) (wanted string, err error) {
	if rand.N(2) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(2*time.Millisecond))
		defer cancel()
	}
	script, shared, own := tell, fmt.Sprint("s", rand.N(2)), "own"
	if rand.N(4) == 0 {
		script = other
	}
	if rand.N(16) == 0 {
		own = []string{"refuse", "nil", "array"}[rand.N(3)]
	}
	wanted = told(who, shared, own)
	answers := map[string]string{"own": wanted, "nil": "%!s(<nil>)", "array": fmt.Sprintf("[a%d %%!s(int64=7)]", who)}
	var reply any
	if own == "own" && rand.N(8) == 0 {
		reply, err = n.Do(ctx, soon(), "ECHO", wanted)
	} else {
		reply, err = n.Eval(ctx, soon(), script, tellKeys(who), shared, 5, own, who)
	}
	switch {
	case own == "refuse" && errors.Is(err, strategy.ErrRefused):
		return wanted, nil
	case err == nil && fmt.Sprintf("%s", reply) != answers[own]:
		return wanted, fmt.Errorf("reply %q", reply)
	}
	return wanted, err
}

// Callers that come and go mix nothing up, and what they hear is true, though the server hangs up now and then, before or
// after it has done what it was asked.
func TestJointChaos(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	done, commands, joined := map[string]int{}, 0, 0
	f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
		how := 1
		if isScript(cmd) {
			mu.Lock()
			commands++
			if how = commands % 100; how != 0 {
				count, _ := strconv.Atoi(cmd[2])
				n, keys, args := count/2, cmd[3:3+count], cmd[3+count:]
				for i := range n {
					done[strings.Join([]string{keys[i], keys[n+i], args[0], args[1], args[2+i], args[2+n+i]}, " ")]++
				}
				joined += n - 1
			}
			mu.Unlock()
		}
		if how == 0 || how == 50 {
			c.Close()
			return
		}
		telling(c, cmd)
	})
	n := newNode(t, poolOf(f))
	var unsent sync.Map // what was not sent, and why
	var all sync.WaitGroup
	for c := range 64 {
		all.Go(func() {
			for i := range 100 {
				wanted, err := anyCall(t.Context(), n, 100*c+i)
				switch {
				case errors.Is(err, strategy.ErrUnsent):
					unsent.Store(wanted, err)
				case err != nil && !errors.Is(err, strategy.ErrUnknown):
					t.Errorf("caller %d, who asked for %q: %v", 100*c+i, wanted, err)
				}
			}
		})
	}
	all.Wait()
	n.Close()
	f.Cut()
	mu.Lock()
	defer mu.Unlock()
	if joined == 0 || commands < 100 {
		t.Errorf("%d commands, %d joined: nothing was joined, or cut: nothing was tested", commands, joined)
	}
	for what, times := range done {
		if times > 1 {
			t.Errorf("%q was done %d times", what, times)
		}
		if err, ok := unsent.Load(what); ok {
			t.Errorf("%q was done, and its caller told %v", what, err)
		}
	}
}
