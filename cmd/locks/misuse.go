package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// synopsis is how to write a command, without its flags.
func synopsis(cmd *cobra.Command) string {
	return strings.TrimSpace(strings.TrimSuffix(cmd.UseLine(), "[flags]"))
}

// exactlyOne demands an argument, such as "the lock's name".
func exactlyOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && args[0] != "" {
			return nil
		}
		return fmt.Errorf("want %s, and no other argument: %s (a text with spaces needs quotes)", what, synopsis(cmd))
	}
}

// aName demands the name of a lock.
func aName(cmd *cobra.Command, args []string) error {
	if err := exactlyOne("the lock's name")(cmd, args); err != nil {
		return err
	}
	return checkName(args[0])
}

// atMostOne allows an argument, such as "pattern".
func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("want one %s at most, but there are %d arguments: %s (a text with spaces or * needs quotes)", what, len(args), synopsis(cmd))
		}
		return nil
	}
}

func onlyFlags(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes flags, and no argument such as %s: %s", cmd.Name(), shown(args[0]), cmd.UseLine())
	}
	return nil
}

// shown is what somebody has written, so that it can be seen where it begins and ends.
func shown(text string) string {
	if text == "" || strings.Contains(text, " ") {
		return strconv.Quote(text)
	}
	return plain(text)
}

// ownFlag returns the first of a command's arguments that is also a flag of f; empty: none is. Flags of one letter, such as
// -n, mean too often the command's.
func ownFlag(f *pflag.FlagSet, args []string) string {
	for _, arg := range args {
		flag, _, _ := strings.Cut(arg, "=")
		if arg == "--" { // the rest are no flags of the command, either
			break
		}
		if name, ok := strings.CutPrefix(flag, "--"); ok && f.Lookup(name) != nil {
			return flag
		}
	}
	return ""
}

// A number is a whole number on the command line.
type number struct {
	p           *int
	least, most int // most: math.MaxInt if there is no other bound
}

func (n number) String() string { return strconv.Itoa(*n.p) }
func (n number) Type() string   { return "number" }

func (n number) Set(text string) error {
	v, err := strconv.ParseInt(text, 0, strconv.IntSize)
	if err == nil && int(v) >= n.least && int(v) <= n.most {
		*n.p = int(v)
		return nil
	}
	if n.most == math.MaxInt {
		return fmt.Errorf("allowed are %d and more", n.least)
	}
	return fmt.Errorf("allowed are %d to %d", n.least, n.most)
}
