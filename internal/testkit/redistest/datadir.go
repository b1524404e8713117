package redistest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockstrategies/locks/internal/testkit/machine"
)

// dataDir is a directory of this machine in which a server starts, and so keeps its files.
type dataDir struct {
	dir    string // "": no directory
	forUse bool   // Config.Files asked for it
}

// newDataDir makes a directory for one server, with the files of its Config.
func newDataDir(h *machine.Host, c Config) (d dataDir, err error) {
	if d.dir, err = h.NewDir(); err != nil {
		return d, fmt.Errorf("redistest: %w", err)
	}
	d.forUse = c.Files != nil
	return d, d.put(context.Background(), c.Files)
}

func (d dataDir) localDir() string {
	if !d.forUse {
		return ""
	}
	return d.dir
}

func (d dataDir) files(context.Context) (map[string][]byte, error) {
	if d.dir == "" {
		return nil, errNoDataDir
	}
	files := map[string][]byte{}
	err := filepath.WalkDir(d.dir, func(p string, e fs.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(p, d.dir+string(filepath.Separator)))
		if err == nil && (!e.Type().IsRegular() || name == machine.LogFile) {
			return nil
		}
		if err == nil {
			files[name], err = os.ReadFile(p)
		}
		if errors.Is(err, fs.ErrNotExist) {
			delete(files, name) // the server removes files of its own, too
			return nil
		}
		return err
	})
	return files, err
}

func (d dataDir) put(_ context.Context, files map[string][]byte) error {
	if d.dir == "" {
		return errNoDataDir
	}
	for name, b := range files {
		p := filepath.Join(d.dir, filepath.FromSlash(name))
		// A container's server may be another user; the directory around all is ours alone.
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

var errNoDataDir = fmt.Errorf("the engine is another machine's, whose files are out of reach: %w", ErrImpossible)

func (d dataDir) remove() error {
	if d.dir == "" {
		return nil
	}
	return os.RemoveAll(d.dir)
}
