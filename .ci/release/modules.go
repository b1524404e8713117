package main

import (
	"context"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// A module is one that is released.
type module struct {
	path   string
	folder string // from the root, "" for the root itself
}

// program reports whether "go install" builds the module.
func (m module) program() bool { return path.Dir(m.folder) == "cmd" }

// modules lists all go.mod files, and the modules that are released, the root first.
func (r repository) modules(ctx context.Context) (files []string, released []module, err error) {
	found, err := r.git(ctx, "ls-files", "go.mod", "*/go.mod")
	if err != nil {
		return nil, nil, err
	}
	files = strings.Fields(found)
	for _, file := range files {
		folder := strings.TrimSuffix(strings.TrimSuffix(file, "go.mod"), "/")
		if folder != "" && !slices.Contains([]string{"clients", "cmd", "stores", "telemetry"}, path.Dir(folder)) {
			continue
		}
		text, err := r.read(file)
		if err != nil {
			return nil, nil, err
		}
		released = append(released, module{modfile.ModulePath([]byte(text)), folder})
	}
	slices.SortFunc(released, func(a, b module) int { return strings.Compare(a.folder, b.folder) })
	return files, released, nil
}

// tagsOf are the names by which the go command finds the version of each module.
func tagsOf(modules []module, version string) (tags []string) {
	for _, m := range modules {
		tags = append(tags, path.Join(m.folder, version))
	}
	return tags
}

// dropReplaces removes the replace lines of modules.
func (r repository) dropReplaces(modules []module) error {
	for _, m := range modules {
		err := r.edit(path.Join(m.folder, "go.mod"), func(mod *modfile.File) error {
			for _, replace := range slices.Clone(mod.Replace) {
				if err := mod.DropReplace(replace.Old.Path, replace.Old.Version); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// require sets the version in each of the go.mod files that requires a released module. That includes modules that
// are never released: a build refuses a go.mod with less than what its dependencies require.
func (r repository) require(files []string, released []module, version string) error {
	for _, file := range files {
		err := r.edit(file, func(mod *modfile.File) error {
			for _, required := range slices.Clone(mod.Require) {
				if slices.ContainsFunc(released, func(m module) bool { return m.path == required.Mod.Path }) {
					if err := mod.AddRequire(required.Mod.Path, version); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// edit changes a go.mod file.
func (r repository) edit(file string, change func(*modfile.File) error) error {
	text, err := r.read(file)
	if err != nil {
		return err
	}
	mod, err := modfile.Parse(file, []byte(text), nil)
	if err != nil {
		return err
	}
	if err := change(mod); err != nil {
		return err
	}
	mod.Cleanup()
	formatted, err := mod.Format()
	if err != nil {
		return err
	}
	return r.write(file, string(formatted))
}
