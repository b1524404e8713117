package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// A repository is the top folder of a clone.
type repository string

func (r repository) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = string(r)
	out, err := cmd.Output()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		err = fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, failed.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

func (r repository) read(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(string(r), name))
	return string(text), err
}

func (r repository) write(name, text string) error {
	return os.WriteFile(filepath.Join(string(r), name), []byte(text), 0o644)
}

// lastRelease is the greatest version that is tagged; "": none is.
func (r repository) lastRelease(ctx context.Context) (string, error) {
	tags, err := r.git(ctx, "tag", "--list", "v*")
	versions := slices.DeleteFunc(strings.Fields(tags), func(tag string) bool { return !semver.IsValid(tag) })
	if err != nil || len(versions) == 0 {
		return "", err
	}
	return slices.MaxFunc(versions, semver.Compare), nil
}

// branch is the current one. It is an error if there is none, or the tree has changes that a commit lacks.
func (r repository) branch(ctx context.Context) (string, error) {
	changes, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return "", err
	}
	if changes != "" {
		return "", fmt.Errorf("allowed is a tree without changes: commit these, or remove them:\n%s", changes)
	}
	branch, err := r.git(ctx, "branch", "--show-current")
	if err == nil && branch == "" {
		err = errors.New("HEAD is detached: allowed is a branch, which will have the commit of the release")
	}
	return branch, err
}

// checkTags: a release that was half taken back has left tags.
func (r repository) checkTags(ctx context.Context, tags []string) error {
	found, err := r.git(ctx, append([]string{"tag", "--list"}, tags...)...)
	if err == nil && found != "" {
		err = fmt.Errorf("allowed is a version without tags: these exist:\n%s", found)
	}
	return err
}

// release commits what edit changes, and tags the commit with the version of each library. The programs are tagged on
// a commit on top of that, which no branch has: their go.mod files have no replace lines there, since "go install"
// refuses a program with one. After an error the clone is as it was, if it had no changes and none of the tags.
func (r repository) release(ctx context.Context, message string, modules []module, version string, edit func() error) (err error) {
	head, err := r.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.undo(context.WithoutCancel(ctx), head, tagsOf(modules, version)))
		}
	}()
	programs := slices.DeleteFunc(slices.Clone(modules), func(m module) bool { return !m.program() })
	libraries := slices.DeleteFunc(slices.Clone(modules), module.program)
	if err := edit(); err != nil {
		return err
	}
	if err := r.commit(ctx, message, tagsOf(libraries, version)); err != nil {
		return err
	}
	if err := r.dropReplaces(programs); err != nil {
		return err
	}
	if err := r.commit(ctx, message+": programs without replace lines", tagsOf(programs, version)); err != nil {
		return err
	}
	_, err = r.git(ctx, "reset", "--quiet", "--hard", "HEAD^")
	return err
}

// commit commits all changes, and tags the commit.
func (r repository) commit(ctx context.Context, message string, tags []string) error {
	if _, err := r.git(ctx, "commit", "--quiet", "--all", "--message", message); err != nil {
		return err
	}
	for _, tag := range tags {
		if _, err := r.git(ctx, "tag", "--annotate", "--message", message, tag); err != nil {
			return err
		}
	}
	return nil
}

func (r repository) undo(ctx context.Context, head string, tags []string) error {
	var errs []error
	for _, tag := range tags {
		_, err := r.git(ctx, "update-ref", "-d", "refs/tags/"+tag) // unlike git tag -d, it accepts that there is none
		errs = append(errs, err)
	}
	_, err := r.git(ctx, "reset", "--quiet", "--hard", head)
	return errors.Join(append(errs, err)...)
}
