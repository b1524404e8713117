package main

import (
	"errors"
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
		switch {
		case len(args) == 0:
			return fmt.Errorf("want %s: %s", what, synopsis(cmd))
		case args[0] == "":
			return fmt.Errorf("want %s, and the argument is empty: %s", what, synopsis(cmd))
		case len(args) == 1:
			return nil
		}
		return fmt.Errorf("want %s, and no other argument, but there are %d: %s (a text with spaces needs quotes)", what, len(args), synopsis(cmd))
	}
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

const helpName = "help"

// aCommand is for the root: what is left as its argument is no command.
func aCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	names := namesOf(root)
	if near := nearest(args[0], names); len(near) > 0 {
		return fmt.Errorf("unknown command %s: did you mean %s?", shown(args[0]), strings.Join(near, ", "))
	}
	return fmt.Errorf("unknown command %s: there are %s", shown(args[0]), strings.Join(names, ", "))
}

// namesOf are all that help is about.
func namesOf(root *cobra.Command) (names []string) {
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() || c.Name() == helpName {
			names = append(names, c.Name())
		}
	}
	return names
}

// nearest returns those of the words that somebody may have meant who has written another one, as cobra judges it of
// the names of commands.
func nearest(word string, words []string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, w := range words {
		all.AddCommand(&cobra.Command{Use: w, Run: func(*cobra.Command, []string) {}})
	}
	return all.SuggestionsFor(word)
}

// shown is what somebody has written, so that it can be seen where it begins and ends.
func shown(text string) string {
	if text == "" || strings.Contains(text, " ") {
		return strconv.Quote(text)
	}
	return plain(text)
}

// explainFlag says in the words of this tool what pflag has found.
func explainFlag(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd == cmd.Root() && len(args) > 0 { // the flags are those of a command that there is not
		return aCommand(cmd, args)
	}
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var syntax *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &unknown):
		return unknownFlag(cmd, unknown)
	case errors.As(err, &missing) && missing.GetSpecifiedShortnames() != "":
		return needsValue("-"+missing.GetSpecifiedName(), missing.GetFlag())
	case errors.As(err, &missing):
		return needsValue("--"+missing.GetSpecifiedName(), missing.GetFlag())
	case errors.As(err, &invalid) && invalid.GetValue() == "--": // which ends the flags
		return needsValue("--"+invalid.GetFlag().Name, invalid.GetFlag())
	case errors.As(err, &invalid):
		allowed := invalid.Unwrap()
		if invalid.GetFlag().Value.Type() == "bool" {
			allowed = errors.New("allowed are true and false, and the flag alone, which is true")
		}
		return fmt.Errorf("--%s is %s: %w", invalid.GetFlag().Name, shown(invalid.GetValue()), allowed)
	case errors.As(err, &syntax):
		return fmt.Errorf("%s is no flag: want --NAME, or --NAME=VALUE", shown(syntax.GetSpecifiedFlag()))
	}
	return err
}

func needsValue(name string, f *pflag.Flag) error {
	what, _ := pflag.UnquoteUsage(f)
	return fmt.Errorf("%s needs a value: %s %s", name, name, strings.ToUpper(what))
}

func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	name, group := unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames()
	switch {
	case group == name:
		return fmt.Errorf("unknown flag: -%s", name)
	case group != "":
		return fmt.Errorf("unknown flag: -%s (a flag of several letters has two dashes)", name)
	}
	for _, other := range cmd.Root().Commands() {
		if other.Flags().Lookup(name) != nil {
			return fmt.Errorf("unknown flag: --%s: %s has it", name, other.Name())
		}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := nearest(name, names); len(near) > 0 {
		return fmt.Errorf("unknown flag: --%s: did you mean --%s?", name, strings.Join(near, ", --"))
	}
	return fmt.Errorf("unknown flag: --%s", name)
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

// helpFlag is --help of the root. Behind a word that is no command it fails, and [explainFlag] says why: cobra would print
// the help of the root, and exit with 0.
type helpFlag struct {
	root *cobra.Command
	set  bool
}

func (h *helpFlag) String() string   { return strconv.FormatBool(h.set) }
func (h *helpFlag) Type() string     { return "bool" }
func (h *helpFlag) IsBoolFlag() bool { return true }

func (h *helpFlag) Set(text string) (err error) {
	if err := aCommand(h.root, h.root.Flags().Args()); err != nil {
		return err
	}
	h.set, err = strconv.ParseBool(text)
	return err
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
