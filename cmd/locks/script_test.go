// Tests that locks script has every script, as it is sent, and that the line of a server's error leads to the line of a file.
package main

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// scriptOutput is what locks script prints.
func scriptOutput(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs strings.Builder
	if code := cli.Execute(t.Context(), rootCommand(), append([]string{"script"}, args...), nil, &out, &errs); code != 0 {
		t.Fatalf("script %q ends with %d: %s", args, code, errs.String())
	}
	return out.String()
}

var made = regexp.MustCompile(`driver\.New(?:Joint)?Script\("(\w+)"`)

// TestScripts: the tool prints each script that the source of a strategy makes, byte for byte, by its name and by its SHA-1.
func TestScripts(t *testing.T) {
	t.Parallel()
	list := scriptOutput(t)
	files, _ := filepath.Glob("../../*/*.go")
	found, sums := 0, map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		redistest.Must(t, err)
		for _, m := range made.FindAllStringSubmatch(string(text), -1) {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			found++
			name := filepath.Base(filepath.Dir(file)) + "/" + m[1]
			source := scriptOutput(t, name)
			sum := sha1.Sum([]byte(source))
			hash := hex.EncodeToString(sum[:])
			if !regexp.MustCompile(`(?m)^` + name + ` +\d+ +` + hash + `$`).MatchString(list) {
				t.Errorf("the list does not have %s with its SHA-1, %s:\n%s", name, hash, list)
			}
			if other := sums[hash[:8]]; other != "" && other != source {
				t.Errorf("%s begins as another's SHA-1, %s", name, hash)
			}
			sums[hash[:8]] = source
			for _, what := range []string{hash, strings.ToUpper(hash), hash[:8]} {
				if got := scriptOutput(t, what); got != source {
					t.Errorf("script %s prints another one than script %s", what, name)
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("%d scripts were found, want those of six strategies", found)
	}
}

// TestScriptLines: every line of every script is that of the file that -n names.
func TestScriptLines(t *testing.T) {
	t.Parallel()
	file := func(by, name string) []string {
		for _, dir := range []string{by, "internal/algorithm/*", "driver/rediskit"} {
			if found, _ := filepath.Glob("../../" + dir + "/" + name); len(found) == 1 {
				text, err := os.ReadFile(found[0])
				redistest.Must(t, err)
				return strings.Split(string(text), "\n")
			}
		}
		return nil
	}
	numbered := regexp.MustCompile(`^ *(\d+)  (\w+\.lua):(\d+) *(?:  (.*))?$`)
	for _, s := range scripts() {
		var out strings.Builder
		redistest.Must(t, numberLines(&out, s.Source()))
		printed := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		for i, want := range strings.Split(strings.TrimSuffix(s.Source(), "\n"), "\n") {
			m := numbered.FindStringSubmatch(printed[i])
			if m == nil || m[1] != strconv.Itoa(i+1) || strings.TrimSpace(m[4]) != strings.TrimSpace(want) {
				t.Fatalf("%s, line %d: %q, want its number, and %q", s.name(), i+1, printed[i], want)
			}
			if n, _ := strconv.Atoi(m[3]); n > len(file(s.by, m[2])) || file(s.by, m[2])[n-1] != want {
				t.Fatalf("%s, line %d: %q is not the line %d of %s", s.name(), i+1, printed[i], n, m[2])
			}
		}
	}
}

// TestScriptOfAnError: what a server says of an error in a script leads to the line that failed.
func TestScriptOfAnError(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	key := "lock:{" + t.Name() + "}"
	redistest.Do(t, s, "RPUSH", key, "no lock")
	err := func() error {
		c := s.Pool().Get()
		defer c.Close()
		release, err := findScript("luascript/release")
		redistest.Must(t, err)
		_, err = redis.DoContext(c, t.Context(), "EVAL", release.Source(), 1, key, "token", "channel")
		return err
	}()
	m := regexp.MustCompile(`script: (\w+), on @user_script:(\d+)`).FindStringSubmatch(fmt.Sprint(err))
	if m == nil {
		t.Skipf("NOT PROVEN: that a server's error leads to the line: this one says %v", err)
	}
	out := scriptOutput(t, "-n", m[1])
	if !regexp.MustCompile(`(?m)^ *` + m[2] + `  release\.lua:` + m[2] + ` +local holder = redis\.call\('GETEX', KEYS\[1\]\)`).MatchString(out) {
		t.Errorf("%v: line %s is not the one that failed in\n%s", err, m[2], out)
	}
}
