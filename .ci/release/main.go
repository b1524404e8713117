// Release prepares a release of all modules of this repository: a commit that names the version, and a tag for
// each module. It publishes nothing: it prints the push.
//
//	make release VERSION=v0.1.0
//	make release VERSION=v0.1.0 ARGS=-n    says what it would do, and changes nothing
//	make release ARGS=-api                 compares the API with that of the last release, as make check does
//
// It releases the root, and each module in a folder of clients, cmd, stores and telemetry, all with the same version. The commit
//   - sets that version wherever a go.mod of the repository requires a released module. The replace lines stay:
//     developers need them, and the go command ignores them for everybody else. But it installs no program that has
//     one: the programs are tagged on a commit on top of this one, which lacks these lines, and which no branch has.
//   - turns "Unreleased" in CHANGELOG.md into the version and the date.
//
// It refuses
//   - a version that is not above the last, or has a tag
//   - a tree with changes
//   - pages that say that there is no release
//   - a changelog without news
//   - an API that breaks callers, if the version promises the opposite
//
// It knows the tags of this clone alone: fetch them first. After an error nothing has changed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/mod/semver"
)

func main() {
	dry := flag.Bool("n", false, "say what a release would do, and change nothing")
	api := flag.Bool("api", false, "compare the API with that of the last release, and do nothing else")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := repository(".").git(ctx, "rev-parse", "--show-toplevel")
	switch {
	case err != nil:
	case *api:
		err = compare(ctx, repository(root), os.Stdout)
	default:
		err = run(ctx, repository(root), flag.Args(), time.Now(), *dry, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, r repository, args []string, today time.Time, dry bool, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("want one version: make release VERSION=v0.1.0")
	}
	version := args[0]
	last, err := r.lastRelease(ctx)
	if err != nil {
		return err
	}
	if err := checkVersion(version, last); err != nil {
		return err
	}
	branch, err := r.branch(ctx)
	if err != nil {
		return err
	}
	files, modules, err := r.modules(ctx)
	if err != nil {
		return err
	}
	tags := tagsOf(modules, version)
	if err := r.checkTags(ctx, tags); err != nil {
		return err
	}
	if err := r.checkPages(ctx); err != nil {
		return err
	}
	changelog, news, err := r.changelog(version, today)
	if err != nil {
		return err
	}
	if err := r.checkAPI(ctx, modules, last, version, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s\n\nTags:\n  %s\n", news, strings.Join(tags, "\n  "))
	if dry {
		fmt.Fprintln(out, "\nNothing has changed (-n).")
		return nil
	}
	err = r.release(ctx, "Release "+version, modules, version, func() error {
		return errors.Join(r.require(files, modules, version), r.write(changelogFile, changelog))
	})
	if err != nil {
		return err
	}
	names := strings.Join(tags, " ")
	fmt.Fprintf(out, `
The release is committed and tagged here, and not published. To publish it, all or nothing:
  git push --atomic origin %s %s
To take it back:
  git tag -d %s && git reset --hard HEAD^
`, branch, names, names)
	return nil
}

// compare prints how the API differs from that of the last release. It is an error if the next minor version must not
// differ so.
func compare(ctx context.Context, r repository, out io.Writer) error {
	last, err := r.lastRelease(ctx)
	if err != nil {
		return err
	}
	var major, minor int
	fmt.Sscanf(last, "v%d.%d", &major, &minor) //nolint:errcheck // before the first release, last is empty
	_, modules, err := r.modules(ctx)
	if err != nil {
		return err
	}
	return r.checkAPI(ctx, modules, last, fmt.Sprintf("v%d.%d.0", major, minor+1), out)
}

// checkVersion: last is "" before the first release.
func checkVersion(version, last string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version || semver.Prerelease(version) != "" {
		return fmt.Errorf("version %q: allowed is vMAJOR.MINOR.PATCH, such as v0.1.0", version)
	}
	if major := semver.Major(version); major != "v0" && major != "v1" {
		return fmt.Errorf("version %s: allowed are v0 and v1, for the paths of the modules do not end in /%s", version, major)
	}
	if last != "" && semver.Compare(version, last) <= 0 {
		return fmt.Errorf("version %s: allowed is a version above %s, the last release", version, last)
	}
	return nil
}
