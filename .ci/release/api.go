package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"
)

// checkAPI prints how the API of each module differs from that of the last release. It is an error if callers may
// no longer compile, though the version promises that they do: v1.2.0 after v1.1.0, or v0.1.1 after v0.1.0.
func (r repository) checkAPI(ctx context.Context, modules []module, last, version string, out io.Writer) error {
	if last == "" {
		fmt.Fprintln(out, "There is no earlier release: no API to compare with.")
		return nil
	}
	old, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(old) //nolint:errcheck // it lies where temporary files do
	if _, err := r.git(ctx, "-c", "advice.detachedHead=false", "clone", "--quiet", "--shared", "--branch", last, ".", old); err != nil {
		return err
	}
	broken := false
	for _, m := range modules {
		folder := filepath.Join(old, m.folder)
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(out, "%s is new.\n", m.path)
			continue
		}
		before, err := api(ctx, folder, m.path)
		if err != nil {
			return err
		}
		after, err := api(ctx, filepath.Join(string(r), m.folder), m.path)
		if err != nil {
			return err
		}
		changes := apidiff.ModuleChanges(before, after)
		fmt.Fprintf(out, "%s: API changes since %s: %d\n%s", m.path, last, len(changes.Changes), changes)
		broken = broken || slices.ContainsFunc(changes.Changes, func(c apidiff.Change) bool { return !c.Compatible })
	}
	switch {
	case !broken || semver.Major(version) != semver.Major(last):
		return nil
	case semver.Major(version) != "v0":
		return fmt.Errorf("version %s: allowed are compatible changes of the API since %s: what breaks callers needs paths that end in /v2", version, last)
	case semver.MajorMinor(version) == semver.MajorMinor(last):
		return fmt.Errorf("version %s: allowed are compatible changes of the API since %s, or a greater minor version", version, last)
	}
	return nil
}

// api is what the packages of the module in a folder export, without those that only the module itself can import.
func api(ctx context.Context, folder, path string) (*apidiff.Module, error) {
	loaded, err := packages.Load(&packages.Config{
		Context: ctx,
		Dir:     folder,
		Env:     append(os.Environ(), "GOWORK=off"),
		Mode:    packages.NeedName | packages.NeedTypes,
	}, "./...")
	m := &apidiff.Module{Path: path}
	for _, p := range loaded {
		for _, wrong := range p.Errors {
			err = errors.Join(err, wrong)
		}
		if p.Name != "main" && !slices.Contains(strings.Split(p.PkgPath, "/"), "internal") {
			m.Packages = append(m.Packages, p.Types)
		}
	}
	return m, err
}
