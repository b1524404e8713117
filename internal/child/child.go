// Package child starts this program again, as a child process, and lets the two talk: tests and
// measurements need contenders in processes of their own, which can be paused and killed.
//
// The environment says what the child is: its role, and its job in JSON. Then parent and child
// send each other messages, lines of JSON over the child's standard input and output.
//
// A child ends with its parent. It reads the end of its input, and Linux kills it, even while it
// is paused.
//
// Main calls [Run] before anything else, once for each role:
//
//	type job struct{ Lock string }
//
//	func main() {
//		if child.Run("holder", hold) {
//			return
//		}
//		…
//	}
//
//	func hold(ctx context.Context, parent *child.Parent, j job) error {
//		…
//		return parent.Send("holds")
//	}
package child

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// variable is the environment variable by which a process learns that it is a child.
const variable = "LOCKS_CHILD"

// A birth is the value of the variable.
type birth struct {
	Role string
	Job  json.RawMessage
}

// mark begins a child's messages: other lines of its output are text for people.
const mark = "message: "

// ErrParentExited says that the parent has closed the child's input, or has exited.
var ErrParentExited = errors.New("the parent has exited")

// Run does work and returns true if this process was started as a child in that role; then main
// should return. ctx ends when the parent is gone. After an error the process exits with 1, and the
// parent gets the error's text. [ErrParentExited] counts as success.
func Run[Job any](role string, work func(ctx context.Context, parent *Parent, j Job) error) bool {
	j, ok := JobOf[Job](role)
	if !ok {
		return false
	}
	if err := Work(j, work); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// JobOf returns the job of this process if it was started as a child in that role. It panics if
// the job has another type.
func JobOf[Job any](role string) (j Job, ok bool) {
	var b birth
	if text := os.Getenv(variable); text != "" {
		if err := json.Unmarshal([]byte(text), &b); err != nil {
			panic(fmt.Sprintf("child: %s is %q: %v", variable, text, err))
		}
	}
	if b.Role != role {
		return j, false
	}
	if err := json.Unmarshal(b.Job, &j); err != nil {
		panic(fmt.Sprintf("child: the job of the role %q: %v", role, err))
	}
	return j, true
}

// Work is [Run] for a child that comes to its job elsewhere than in main, as in a test: it returns
// the error. A process calls it once.
func Work[Job any](j Job, work func(ctx context.Context, parent *Parent, j Job) error) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	p := &Parent{messages: make(chan []byte, 64)}
	go func() {
		defer close(p.messages)
		for in := bufio.NewReader(os.Stdin); ; {
			line, err := in.ReadBytes('\n')
			if err != nil {
				cancel(ErrParentExited)
				return
			}
			p.messages <- line
		}
	}()
	if err := work(ctx, p, j); !errors.Is(err, ErrParentExited) {
		return err
	}
	return nil
}

// A Parent is the parent as its child sees it.
type Parent struct{ messages chan []byte }

// Send sends a message to the parent. Goroutines may send at the same time.
func (*Parent) Send(message any) error {
	line, err := encode(mark, message)
	if err == nil {
		_, err = os.Stdout.Write(line)
	}
	return err
}

// Receive waits for the next message and decodes it. The error is [ErrParentExited] when there will
// be none.
func (p *Parent) Receive(message any) error {
	line, ok := <-p.messages
	if !ok {
		return ErrParentExited
	}
	return json.Unmarshal(line, message)
}

// Ask sends a message and waits for the answer, whatever it is.
func (p *Parent) Ask(message any) error {
	if err := p.Send(message); err != nil {
		return err
	}
	return p.Receive(new(any))
}

// encode makes a message one line, which is written in one piece.
func encode(prefix string, message any) ([]byte, error) {
	text, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{[]byte(prefix), text, {'\n'}}, nil), nil
}
