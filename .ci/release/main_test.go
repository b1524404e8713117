// Tests a release of a small repository: its commit and its tags, what is refused, and that after an error nothing
// has changed.
package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
)

func TestMain(m *testing.M) {
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"} {
		os.Unsetenv(name) // a hook of git has them: then the tests would release the repository that they belong to
	}
	redistest.Main(storetest.Tests{M: m})
}

var today = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// initialize makes an empty repository.
func initialize(t *testing.T) repository {
	t.Helper()
	r := repository(t.TempDir())
	git(t, r, "init", "--quiet", "--initial-branch", "main")
	for _, setting := range []string{"user.name tester", "user.email tester@example.com", "commit.gpgSign false", "tag.gpgSign false", "core.hooksPath .git/hooks"} {
		name, value, _ := strings.Cut(setting, " ")
		git(t, r, "config", name, value)
	}
	return r
}

func git(t *testing.T, r repository, args ...string) string {
	t.Helper()
	out, err := r.git(t.Context(), args...)
	redistest.Must(t, err)
	return out
}

// shop is a repository with four modules to release, one of them a program, and one that is not.
func shop(t *testing.T) repository {
	t.Helper()
	r := initialize(t)
	write(t, r, "go.mod", "module example.com/shop\n\ngo 1.25.0\n")
	write(t, r, "shop.go", "// Package shop sells.\npackage shop\n\nfunc Sell() {}\n")
	write(t, r, "clients/web/go.mod", goMod("clients/web", "require example.com/shop v0.0.0"))
	write(t, r, "clients/web/web.go", "// Package web sells on the web.\npackage web\n\nimport \"example.com/shop\"\n\nfunc Sell() { shop.Sell() }\n")
	write(t, r, "cmd/till/go.mod", goMod("cmd/till", "require example.com/shop v0.0.0"))
	write(t, r, "cmd/till/main.go", "// Till sells by hand.\npackage main\n\nimport _ \"example.com/shop\"\n\nfunc main() {}\n")
	write(t, r, "telemetry/count/go.mod", goMod("telemetry/count", "require (\n\texample.com/other v1.2.3\n\texample.com/shop v0.0.1 // indirect\n)"))
	write(t, r, "lab/go.mod", goMod("lab", "require (\n\texample.com/shop v0.0.0\n\texample.com/shop/clients/web v0.0.0\n)"))
	write(t, r, changelogFile, "# Changelog\n\n## Unreleased\n\n- It sells.\n")
	write(t, r, "README.md", "# Shop\n")
	commit(t, r)
	return r
}

func goMod(folder, requires string) string {
	return "module example.com/shop/" + folder + "\n\ngo 1.25.0\n\n" + requires + "\n\nreplace example.com/shop => ../..\n"
}

func write(t *testing.T, r repository, name, text string) {
	t.Helper()
	redistest.Must(t, os.MkdirAll(filepath.Join(string(r), filepath.Dir(name)), 0o755))
	redistest.Must(t, r.write(name, text))
}

func read(t *testing.T, r repository, name string) string {
	t.Helper()
	text, err := r.read(name)
	redistest.Must(t, err)
	return text
}

func commit(t *testing.T, r repository) {
	t.Helper()
	git(t, r, "add", "--all")
	git(t, r, "commit", "--quiet", "--message", "change")
}

// news commits what makes the next release possible.
func news(t *testing.T, r repository) {
	t.Helper()
	write(t, r, changelogFile, strings.Replace(read(t, r, changelogFile), unreleased, unreleased+"\n- news\n", 1))
	commit(t, r)
}

// state is what a release would change.
func state(t *testing.T, r repository) string {
	t.Helper()
	return git(t, r, "show-ref") + "\n" + git(t, r, "status", "--porcelain", "--branch")
}

func release(t *testing.T, r repository, args ...string) (out string, err error) {
	t.Helper()
	var b bytes.Buffer
	err = run(t.Context(), r, args, today, false, &b)
	return b.String(), err
}

func mustRelease(t *testing.T, r repository, version string) (out string) {
	t.Helper()
	out, err := release(t, r, version)
	if err != nil {
		t.Fatalf("release %s: %v\n%s", version, err, out)
	}
	return out
}

func contains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s:\n%s\nwant %q in it", what, text, part)
		}
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	r := shop(t)
	out := mustRelease(t, r, "v0.1.0")
	contains(t, "output", out, "no earlier release", "- It sells.",
		"git push --atomic origin main v0.1.0 clients/web/v0.1.0 cmd/till/v0.1.0 telemetry/count/v0.1.0\n",
		"git tag -d v0.1.0 clients/web/v0.1.0 cmd/till/v0.1.0 telemetry/count/v0.1.0 && git reset --hard HEAD^\n")

	for name, want := range map[string]string{
		"go.mod":                 "module example.com/shop\n\ngo 1.25.0\n",
		"clients/web/go.mod":     goMod("clients/web", "require example.com/shop v0.1.0"),
		"cmd/till/go.mod":        goMod("cmd/till", "require example.com/shop v0.1.0"),
		"telemetry/count/go.mod": goMod("telemetry/count", "require (\n\texample.com/other v1.2.3\n\texample.com/shop v0.1.0 // indirect\n)"),
		"lab/go.mod":             goMod("lab", "require (\n\texample.com/shop v0.1.0\n\texample.com/shop/clients/web v0.1.0\n)"),
		changelogFile:            "# Changelog\n\n## Unreleased\n\n## v0.1.0 – 2026-11-25\n\n- It sells.\n",
	} {
		if got := git(t, r, "show", "HEAD:"+name); got != strings.TrimSpace(want) {
			t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
		}
	}
	if got := git(t, r, "log", "--format=%s"); got != "Release v0.1.0\nchange" {
		t.Errorf("commits: %q, want one more", got)
	}
	const tags = "clients/web/v0.1.0 tag commit\ntelemetry/count/v0.1.0 tag commit\nv0.1.0 tag commit"
	if got := git(t, r, "tag", "--points-at", "HEAD", "--format=%(refname:short) %(objecttype) %(*objecttype)"); got != tags {
		t.Errorf("tags at the commit:\n%s\nwant\n%s", got, tags)
	}
	if got := git(t, r, "diff", "--name-only", "HEAD", "cmd/till/v0.1.0"); got != "cmd/till/go.mod" {
		t.Errorf("the commit of the program differs in %q, want its go.mod alone", got)
	}
	const program = "module example.com/shop/cmd/till\n\ngo 1.25.0\n\nrequire example.com/shop v0.1.0"
	if got := git(t, r, "show", "cmd/till/v0.1.0:cmd/till/go.mod"); got != program {
		t.Errorf("the program's go.mod is\n%s\nwant\n%s", got, program)
	}
	if got := git(t, r, "log", "--format=%s", "HEAD^..cmd/till/v0.1.0"); got != "Release v0.1.0: programs without replace lines\nRelease v0.1.0" {
		t.Errorf("commits of the program: %q, want one on top of the release", got)
	}
	if got := git(t, r, "status", "--porcelain"); got != "" {
		t.Errorf("after the release the tree has changes:\n%s", got)
	}

	news(t, r)
	mustRelease(t, r, "v0.1.1")
	const want = "# Changelog\n\n## Unreleased\n\n## v0.1.1 – 2026-11-25\n\n- news\n\n## v0.1.0 – 2026-11-25\n\n- It sells.\n"
	if got := read(t, r, changelogFile); got != want {
		t.Errorf("changelog after two releases:\n%s\nwant\n%s", got, want)
	}
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	r := shop(t)
	before := state(t, r)
	var out bytes.Buffer
	redistest.Must(t, run(t.Context(), r, []string{"v0.1.0"}, today, true, &out))
	contains(t, "output", out.String(), "- It sells.", "clients/web/v0.1.0", "Nothing has changed")
	if after := state(t, r); after != before {
		t.Errorf("the clone was\n%s\nand is\n%s", before, after)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		version string
		prepare func(t *testing.T, r repository) // of a clone whose release would succeed; nil: none
		want    string
	}{
		{"no v", "0.1.0", nil, "allowed is vMAJOR.MINOR.PATCH"},
		{"no patch", "v0.1", nil, "allowed is vMAJOR.MINOR.PATCH"},
		{"no version", "", nil, "allowed is vMAJOR.MINOR.PATCH"},
		{"candidate", "v0.1.0-rc.1", nil, "allowed is vMAJOR.MINOR.PATCH"},
		{"build", "v0.1.0+1", nil, "allowed is vMAJOR.MINOR.PATCH"},
		{"other paths", "v2.0.0", nil, "allowed are v0 and v1"},
		{"changed file", "v0.1.0", func(t *testing.T, r repository) { write(t, r, "shop.go", "package shop\n") }, "M shop.go"},
		{"new file", "v0.1.0", func(t *testing.T, r repository) { write(t, r, "new.go", "package shop\n") }, "?? new.go"},
		{"no branch", "v0.1.0", func(t *testing.T, r repository) { git(t, r, "checkout", "--quiet", "--detach") }, "allowed is a branch"},
		{"same version", "v0.9.0", func(t *testing.T, r repository) { git(t, r, "tag", "v0.9.0") }, "above v0.9.0"},
		{"older version", "v0.9.0", func(t *testing.T, r repository) { git(t, r, "tag", "v0.9.1"); git(t, r, "tag", "v0.10.0") }, "above v0.10.0"},
		{"tag of a module", "v0.1.0", func(t *testing.T, r repository) { git(t, r, "tag", "clients/web/v0.1.0") }, "clients/web/v0.1.0"},
		{"page", "v0.1.0", func(t *testing.T, r repository) {
			write(t, r, "docs/run/tool.md", "# Tool\n\nNothing has been released yet.\n")
			commit(t, r)
		}, "docs/run/tool.md:3:Nothing has been released yet."},
		{"no news", "v0.1.0", func(t *testing.T, r repository) {
			write(t, r, changelogFile, "# Changelog\n\n## Unreleased\n\n## v0.0.9 – 2026-11-24\n\n- It sells.\n")
			commit(t, r)
		}, "nothing below the line"},
		{"no heading", "v0.1.0", func(t *testing.T, r repository) {
			write(t, r, changelogFile, "# Changelog\n\n- It sells.\n")
			commit(t, r)
		}, "nothing below the line"},
		{"go.mod", "v0.1.0", func(t *testing.T, r repository) {
			write(t, r, "lab/go.mod", "no module\n")
			commit(t, r)
		}, "lab/go.mod:1"},
		{"commit", "v0.1.0", func(t *testing.T, r repository) { hook(t, r, "pre-commit", "exit 1") }, "git commit"},
		{"last tag", "v0.1.0", func(t *testing.T, r repository) {
			hook(t, r, "reference-transaction", `if [ "$1" = prepared ] && grep -v ' 0000000000000000000000000000000000000000 ' | grep -q telemetry/; then exit 1; fi`)
		}, "git tag"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := shop(t)
			if tt.prepare != nil {
				tt.prepare(t, r)
			}
			refused(t, r, tt.version, tt.want)
		})
	}
	t.Run("arguments", func(t *testing.T) {
		t.Parallel()
		r := shop(t)
		if _, err := release(t, r); err == nil || !strings.Contains(err.Error(), "want one version") {
			t.Errorf("release without a version: %v", err)
		}
		if _, err := release(t, r, "v0.1.0", "v0.2.0"); err == nil || !strings.Contains(err.Error(), "want one version") {
			t.Errorf("release of two versions: %v", err)
		}
	})
}

func hook(t *testing.T, r repository, name, script string) {
	t.Helper()
	path := filepath.Join(string(r), ".git/hooks", name)
	redistest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	redistest.Must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
}

// refused demands that a release fails, and that nothing has changed then.
func refused(t *testing.T, r repository, version string, want ...string) {
	t.Helper()
	before := state(t, r)
	out, err := release(t, r, version)
	if err == nil {
		t.Fatalf("release %s succeeded:\n%s", version, out)
	}
	contains(t, "output and error", out+err.Error(), want...)
	if after := state(t, r); after != before {
		t.Errorf("after %v the clone is\n%s\nwant\n%s", err, after, before)
	}
}

func compared(t *testing.T, r repository) (string, error) {
	t.Helper()
	var out strings.Builder
	err := compare(t.Context(), r, &out)
	return out.String(), err
}

// TestAPI: what breaks callers needs a version that says so.
func TestAPI(t *testing.T) {
	t.Parallel()
	r := shop(t)
	if out, err := compared(t, r); err != nil || !strings.Contains(out, "no earlier release") {
		t.Errorf("compare before the first release = %v; it printed\n%s", err, out)
	}
	mustRelease(t, r, "v0.1.0")

	write(t, r, "clients/web/web.go", "// Package web sells on the web.\npackage web\n\nfunc Sell(n int) {}\n")
	write(t, r, "clients/app/go.mod", goMod("clients/app", "require example.com/shop v0.1.0"))
	write(t, r, "clients/app/app.go", "// Package app is new.\npackage app\n")
	write(t, r, "internal/stock/stock.go", "package stock\n\nfunc Count() {}\n")
	news(t, r)
	refused(t, r, "v0.1.1", "Sell: changed from func() to func(int)", "allowed are compatible changes", "greater minor version")
	out := mustRelease(t, r, "v0.2.0")
	contains(t, "output", out, "Sell: changed from func() to func(int)", "example.com/shop: API changes since v0.1.0: 0\n", "example.com/shop/clients/app is new")
	contains(t, "tags", git(t, r, "tag"), "clients/app/v0.2.0")

	write(t, r, "internal/stock/stock.go", "package stock\n")
	write(t, r, "shop.go", "// Package shop sells.\npackage shop\n\nfunc Sell() {}\n\nfunc Return() {}\n")
	news(t, r)
	out = mustRelease(t, r, "v0.2.1")
	contains(t, "output", out, "Compatible changes:\n- Return: added")

	write(t, r, "shop.go", "// Package shop sells.\npackage shop\n\nfunc Sell() {}\n")
	news(t, r)
	if out, err := compared(t, r); err != nil || !strings.Contains(out, "Return: removed") {
		t.Errorf("compare below v1 = %v, want that the next minor version may differ; it printed\n%s", err, out)
	}
	mustRelease(t, r, "v1.0.0")

	write(t, r, "shop.go", "// Package shop sells.\npackage shop\n")
	news(t, r)
	refused(t, r, "v1.1.0", "Sell: removed", "paths that end in /v2")
	if out, err := compared(t, r); err == nil || !strings.Contains(err.Error(), "version v1.1.0: allowed are compatible changes") {
		t.Errorf("compare from v1 on = %v, want that the next minor version must not differ; it printed\n%s", err, out)
	}

	write(t, r, "shop.go", "package shop\n\nfunc Sell() { missing() }\n")
	news(t, r)
	refused(t, r, "v1.1.0", "undefined: missing")
}
