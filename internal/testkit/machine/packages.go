package machine

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// unpackLimit bounds the download of a package and what it depends on: 15 MB for Redis, 80 MB for PostgreSQL.
const unpackLimit = 5 * time.Minute

//go:embed unpack.sh
var unpackScript string

// Package is a package of a server, such as valkey-server, in one of Debian's suites. The zero value is none.
type Package struct {
	Name, Suite string
	Program     string   // the server's path in it, such as usr/bin/valkey-server
	With        []string // other packages that the image needs
}

func (p Package) String() string { return p.Name + "@" + p.Suite }

// Image is the name of the image that is built from the package. Its version is in its environment, as in the official images.
func (p Package) Image() string { return "locks-redistest/" + p.Name + ":" + p.Suite }

// Bin is where the programs next to the server's run from, of a package that is unpacked in dir.
func (p Package) Bin(dir string) string { return filepath.Join(dir, "run", filepath.Dir(p.Program)) }

// Unpack leaves what unpack.sh makes of the package in the cache, or takes what is there.
func (h *Host) Unpack(ctx context.Context, p Package) (dir string, err error) {
	dir = filepath.Join(h.cache, "unpacked", p.String())
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	work := dir + ".work"
	if err := os.RemoveAll(work); err != nil { // of a process that was killed
		return "", err
	}
	fmt.Fprintf(h.Log, "fetching Debian's package %s\n", p)
	limit, cancel := context.WithTimeoutCause(ctx, unpackLimit, fmt.Errorf("not done within %v", unpackLimit))
	defer cancel()
	args := slices.Concat([]string{"-c", unpackScript, "unpack.sh", p.Program, p.Suite, work, p.Name}, p.With)
	cmd := exec.CommandContext(limit, "sh", args...) // #nosec: ours
	cmd.WaitDelay = 5 * time.Second                  // apt's helpers may outlive it
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		if limit.Err() != nil {
			err = context.Cause(limit)
		}
		return "", errors.Join(fmt.Errorf("Debian's package %s cannot be unpacked: %w: %s", p, err, strings.TrimSpace(said.String())), os.RemoveAll(work))
	}
	return dir, os.Rename(work, dir)
}

// lock waits for a lock among processes. The kernel releases it when its holder dies, so
// nothing is ever left locked.
func lock(ctx context.Context, name string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	// The lock belongs to the open file, so other goroutines wait as well.
	if err := Poll(ctx, func() (bool, error) { return tryLock(file) }); err != nil {
		file.Close()
		return nil, fmt.Errorf("waiting for %s: %w", name, err)
	}
	return func() { file.Close() }, nil
}
