// Tests that what the tool refuses is said in its own words, and not in those of the libraries that it uses.
package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstrategies/locks/internal/testkit/clitest"
)

// foreign are words of cobra, pflag and the standard library that say too little, or name what no user knows.
var foreign = regexp.MustCompile(`strconv|invalid (syntax|argument)|arg\(s\)|shorthand|needs an argument|bad flag|for "locks|%!|Parse`)

// refused runs the tool with arguments that it is to refuse, in its own words.
func refused(t *testing.T, args string, wants ...string) {
	t.Helper()
	said := ""
	for _, want := range append(wants, "") {
		said = clitest.Misuse(t, rootCommand(), args, want)
	}
	if found := foreign.FindString(said); found != "" {
		t.Errorf("%s: %q is a library's, in\n%s", args, found, said)
	}
}

// commands are all that users run.
func commands() (all []*cobra.Command) {
	root := rootCommand()
	root.InitDefaultHelpCmd()
	return append(slices.DeleteFunc(root.Commands(), func(c *cobra.Command) bool { return c.Hidden || !c.Runnable() }), root)
}

// path is how to call a command.
func path(cmd *cobra.Command) string {
	return strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "locks"), " ")
}

// TestMisuseOfFlags: each flag of each command, without a value and with one that it cannot have.
func TestMisuseOfFlags(t *testing.T) {
	t.Setenv(redisVar, "")
	seen := map[string]bool{}
	for _, cmd := range commands() {
		cmd.InitDefaultHelpFlag()
		cmd.InitDefaultVersionFlag()
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			kind := f.Value.Type()
			seen[kind] = true
			switch kind {
			case "bool":
				refused(t, path(cmd)+" --"+f.Name+"=a", "--"+f.Name+" is a: allowed are true and false")
				return
			case "time":
				refused(t, path(cmd)+" --"+f.Name+" a", "--"+f.Name+" is a: allowed are seconds, such as 90")
			case "number":
				for _, not := range []string{"a", "-7", "1.5", "99999999999999999999"} {
					refused(t, path(cmd)+" --"+f.Name+" "+not, "--"+f.Name+" is "+not+": allowed are ")
				}
				refused(t, path(cmd)+" --"+f.Name+"=", "--"+f.Name+` is "": allowed are `)
			case "string", "stringArray": // any text
			default:
				t.Errorf("%s --%s is a %s: want a type whose errors say what is allowed", path(cmd), f.Name, kind)
			}
			what, _ := pflag.UnquoteUsage(f)
			if what == "" || what == "string" || what == "stringArray" {
				t.Errorf("%s --%s: its value is a %q: want a word for it, in backquotes", path(cmd), f.Name, what)
			}
			refused(t, path(cmd)+" --"+f.Name, "--"+f.Name+" needs a value: --"+f.Name+" "+strings.ToUpper(what))
			if f.Shorthand != "" {
				refused(t, path(cmd)+" -"+f.Shorthand, "-"+f.Shorthand+" needs a value: -"+f.Shorthand+" "+strings.ToUpper(what))
			}
		})
		refused(t, path(cmd)+" --nope", "unknown flag: --nope\n")
		refused(t, path(cmd)+" -ä", "unknown flag: ")
		refused(t, path(cmd)+" -x", "unknown flag: -x\n")
		refused(t, path(cmd)+" -help", "unknown flag: -e (a flag of several letters has two dashes)\n")
		refused(t, path(cmd)+" --=x", "--=x is no flag: want --NAME, or --NAME=VALUE")
	}
	if len(seen) < 5 {
		t.Errorf("the flags are of the types %v: the test has lost its sight", seen)
	}
	refused(t, "list --jsn", "unknown flag: --jsn: did you mean --json?")
	refused(t, "list -json", "unknown flag: -j (a flag of several letters has two dashes)\n")
	refused(t, "exec a --tr -- true", "unknown flag: --tr: did you mean ", "--try")
	refused(t, "exec a --ttl soon -- true", "--ttl is soon: allowed are seconds")
}

// TestMisuseOfArguments: each command with too many arguments, and without those that it needs.
func TestMisuseOfArguments(t *testing.T) {
	t.Setenv(redisVar, "")
	for _, cmd := range commands() {
		if cmd.Name() == "exec" || cmd.Name() == "locks" {
			continue
		}
		refused(t, path(cmd)+" a b c", cmd.Name())
		if strings.Contains(cmd.Use, " ") && !strings.Contains(cmd.Use, " [") {
			refused(t, path(cmd), "want ", "locks "+cmd.Use)
		}
	}
	for args, want := range map[string]string{
		"inspect":       "want the lock's name: locks inspect NAME\n",
		"inspect a b":   "want the lock's name, and no other argument, but there are 2: locks inspect NAME (a text with spaces needs quotes)\n",
		"release":       "want the lock's name: locks release NAME",
		"watch":         "want the lock's name: locks watch NAME\n",
		"man":           "want the directory: locks man DIRECTORY\n",
		"list a b":      "want one pattern at most, but there are 2 arguments: locks list [PATTERN] (a text with spaces or * needs quotes)\n",
		"check a":       "check takes flags, and no argument such as a: locks check [flags]\n",
		"bootstrap a:1": "bootstrap takes flags, and no argument such as a:1: locks bootstrap [flags]\n",
		"help nope":     "unknown command nope: there are bootstrap, check, completion, exec, help, inspect, list, man, release, script, servers, watch\n",
		"help inspec":   "unknown command inspec: did you mean inspect?\n",
		"nope":          "unknown command nope: there are bootstrap, check, ",
		"nope --help":   "unknown command nope: there are bootstrap",
		"inspec -h":     "unknown command inspec: did you mean inspect?\n",
		"nope --json":   "unknown command nope: there are bootstrap",
		"lst --json":    "unknown command lst: did you mean list?\n",
		"insp":          "unknown command insp: did you mean inspect?\n",
		"server":        "unknown command server: did you mean servers?\n",
	} {
		refused(t, args, want)
	}
	if err := exactlyOne("the directory")(manCommand(), []string{""}); err == nil || err.Error() != "want the directory, and the argument is empty: man DIRECTORY" {
		t.Errorf("an empty argument: %v, want that it is refused", err)
	}
	if err := aCommand(rootCommand(), []string{""}); err == nil || !strings.Contains(err.Error(), `unknown command "": `) {
		t.Errorf("an empty command: %v, want that it is refused", err)
	}
}

// TestMisuseOfFiles: a client's certificate that is none.
func TestMisuseOfFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pem")
	if err := os.WriteFile(file, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "check --redis a --tls --tls-cert "+file+" --tls-key "+file, "--tls-cert and --tls-key: want a certificate and its key, in PEM: ")
}

// TestHelpBehindTheName: the flag --help is understood wherever exec takes flags.
func TestHelpBehindTheName(t *testing.T) {
	for _, args := range []string{"exec --help", "exec a --help", "exec a -h -- true", "exec a --try -h"} {
		clitest.Help(t, rootCommand(), args, []string{"Usage: locks exec NAME"})
	}
}
