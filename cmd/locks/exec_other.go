//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import (
	"context"
	"errors"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/strategy"
)

// errNoExec: what exec promises takes process groups and signals.
var errNoExec = errors.New("exec is for Linux, macOS and the BSDs: it ends a command by its process group, which " +
	runtime.GOOS + " does not have; in a program use strategy.Do")

func (e *execution) hold(context.Context, strategy.Lease, string) error { return errNoExec }

func watchCommands() []*cobra.Command { return nil }

func becomeCommand() {}
