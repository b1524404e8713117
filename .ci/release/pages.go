package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

const (
	changelogFile = "CHANGELOG.md"
	unreleased    = "\n## Unreleased\n"
)

// changelog returns the changelog as the release has it, and its news: what stands below "Unreleased".
func (r repository) changelog(version string, today time.Time) (text, news string, err error) {
	if text, err = r.read(changelogFile); err != nil {
		return "", "", err
	}
	before, after, found := strings.Cut(text, unreleased)
	news, _, _ = strings.Cut(after, "\n## ")
	news = strings.TrimSpace(news)
	if !found || news == "" {
		return "", "", fmt.Errorf("%s: there is nothing below the line %q: write there what this release changes",
			changelogFile, strings.TrimSpace(unreleased))
	}
	return fmt.Sprintf("%s%s\n## %s – %s\n%s", before, unreleased, version, today.Format(time.DateOnly), after), news, nil
}

// unpublished are the words of pages that are wrong from the first release on.
const unpublished = "nothing has been released|until the first release|from the first release on|will be the first release"

func (r repository) checkPages(ctx context.Context) error {
	lines, err := r.git(ctx, "grep", "--line-number", "--ignore-case", "--extended-regexp", unpublished, "--", "*.md")
	if none := new(exec.ExitError); errors.As(err, &none) && none.ExitCode() == 1 {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("these lines say that there is no release: change them first:\n%s", lines)
}
