// Which prints what Redis the tests will run against, and why, and prepares it: it
// pulls or builds the image, once for all test binaries that follow, and sees that a
// server answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	w, err := redistest.FromEnv()
	if err != nil {
		return err
	}
	f, err := redistest.Open(ctx, w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fmt.Println(f.Choice()) // before the slow work
	s, err := f.Shared(ctx)
	if err != nil {
		return err
	}
	c, err := s.Pool().GetContext(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Do("PING")
	return err
}
