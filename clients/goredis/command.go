package goredisnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// A processor runs a command: a client, a connection, or afterAsking.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// A command is one of go-redis' that knows whether it has been written, and is written once.
//
// go-redis does not say whether a command that failed had left: a refused password, for example,
// looks like the command's own refusal. But some arguments are asked for their bytes when go-redis
// writes them. The first argument of a command, its name, is such an argument here: a verb.
type command struct {
	*redis.Cmd
	name string
	call *call

	progress atomic.Int32
}

// The stages of a command. The one that moves it away from queued decides whether it is sent.
const (
	queued  = iota
	sending // its bytes are on their way, or may be
	dropped // its caller has left before: no byte
)

// verb is the command as its own first argument.
type verb command

var errNotAgain = errors.New("not written a second time, or after its caller has left")

// MarshalBinary is called by the writer. An error keeps the command from being sent, and
// closes the connection, of which it has taken a part of a buffer.
func (v *verb) MarshalBinary() ([]byte, error) {
	if why := v.call.ended(); why != nil {
		return nil, why
	}
	if !v.progress.CompareAndSwap(queued, sending) {
		return nil, errNotAgain
	}
	return []byte(v.name), nil
}

// String is for hooks that print arguments.
func (v *verb) String() string { return v.name }

// newCommand takes args, whose first element is the command's place.
func newCommand(c *call, name string, args []any) *command {
	cmd := &command{name: name, call: c}
	args[0] = (*verb)(cmd)
	cmd.Cmd = redis.NewCmd(c.ctx, args...)
	return cmd
}

// NoRetry keeps go-redis from trying again. If it tried, the verb would refuse.
func (c *command) NoRetry() bool { return true }

// Name returns the command's name as go-redis writes names, for hooks.
func (c *command) Name() string { return strings.ToLower(c.name) }

// FullName is Name: no command of ours has a subcommand that routing depends on.
func (c *command) FullName() string { return c.Name() }

// run sends a command and says what became of it. The call's client is set.
func (c *call) run(on processor, name string, args []any) (any, error) {
	cmd := newCommand(c, name, args)
	err := process(on, cmd)
	var said redis.Error
	switch {
	case err != nil && !errors.As(err, &said):
		c.n.to.reload()
	case said != nil && rediskit.ReadOnly(said):
		c.n.to.reload()
		c.n.leave(c.client)
	}
	if cmd.progress.CompareAndSwap(queued, dropped) {
		if err == nil {
			err = errors.New("a hook of the client has not passed it on")
		}
		return nil, c.unsent(c.n.greeted(c.ctx, c.client, err))
	}
	if err != nil && said == nil {
		if c.late() || !c.left() { // one who leaves early says nothing of the connection
			c.n.drain(c.client)
		}
		return nil, c.failed(strategy.ErrUnknown, c.why(lost(err)))
	}
	c.n.answers(c.client)
	switch {
	case err == nil:
		reply, err := client.Plain(cmd.Val())
		if err != nil {
			return nil, c.failed(strategy.ErrUnknown, err)
		}
		return reply, nil
	case errors.Is(err, redis.Nil):
		return nil, nil
	case redis.IsAuthError(said):
		return nil, c.unsent(unauthenticated(said))
	case name == "EXEC" && !strings.HasPrefix(said.Error(), "EXECABORT ") && !strings.HasPrefix(said.Error(), "ERR "):
		// go-redis takes some errors among the replies of a transaction for that of the
		// whole: the other commands have taken effect.
		return nil, c.failed(strategy.ErrUnknown, said)
	}
	return nil, rediskit.ErrorReply(c.node(), said)
}

// process runs the command. go-redis panics at lengths that no memory has: whatever spoke, it
// was no Redis.
func process(on processor, cmd *command) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("not a reply of Redis: %v", r)
		}
	}()
	return on.Process(cmd.call.ctx, cmd)
}

// ended says what ended a call, or nil.
func (c *call) ended() error {
	if why := timeup.Why(c.user, c.due); why != nil {
		return why
	}
	if c.n.isClosed() {
		return strategy.ErrClosed
	}
	return nil
}

// left reports whether the caller's own time is over: its timer may run later.
func (c *call) left() bool {
	at, limited := c.user.Deadline()
	return c.user.Err() != nil || limited && !time.Now().Before(at)
}

// late reports whether the call has run out of time.
func (c *call) late() bool { return !time.Now().Before(c.due) }

// why puts what ended the call, if anything has, before what go-redis says.
func (c *call) why(err error) error {
	ended := c.ended()
	switch {
	case ended == nil:
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ended // it says the same in fewer words
	}
	return timeup.Before(ended, err)
}

func (c *call) unsent(err error) error {
	return c.failed(strategy.ErrUnsent, client.Discreet(c.why(err), c.n.password))
}

func (c *call) failed(kind, err error) error {
	return &strategy.ServerError{Node: c.node(), Kind: kind, Err: err}
}

// node is the server that is asked, for errors.
func (c *call) node() string {
	if c.client == nil {
		return c.n.Name()
	}
	return c.n.to.nameOf(c.client)
}
