package redistest

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// defaultPackage is what is unpacked when nothing else is named: the same version as defaultImage.
const defaultPackage = "redis-server@bookworm"

// unpackLimit bounds the download of a package and what it depends on, some 15 MB.
const unpackLimit = 5 * time.Minute

//go:embed unpack.sh
var unpackScript string

// debianPackage is a package of a server, such as valkey-server, in one of Debian's suites.
type debianPackage struct{ name, suite string }

// packageOf splits package@suite.
func packageOf(s string) (p debianPackage) {
	p.name, p.suite, _ = strings.Cut(s, "@")
	return p
}

func (p debianPackage) String() string { return p.name + "@" + p.suite }

// image is the name of what is built from the package. Its version is in its environment, as in
// the official images.
func (p debianPackage) image() string { return "locks-redistest/" + p.name + ":" + p.suite }

// unpack leaves what unpack.sh makes of the package in the cache, or takes what is there.
func (f *Farm) unpack(ctx context.Context, p debianPackage) (dir string, err error) {
	dir = filepath.Join(f.cache, "packages", p.String())
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
		return "", fmt.Errorf("redistest: %w", err)
	}
	fmt.Fprintf(f.log, "redis: fetching Debian's package %s\n", p)
	limit, cancel := context.WithTimeoutCause(ctx, unpackLimit, fmt.Errorf("not done within %v", unpackLimit))
	defer cancel()
	cmd := exec.CommandContext(limit, "sh", "-c", unpackScript, "unpack.sh", p.name, p.suite, work)
	cmd.WaitDelay = 5 * time.Second // apt's helpers may outlive it
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		if limit.Err() != nil {
			err = context.Cause(limit)
		}
		return "", errors.Join(fmt.Errorf("Debian's package %s cannot be unpacked: %w: %s", p, err, strings.TrimSpace(said.String())), os.RemoveAll(work))
	}
	if err := os.Rename(work, dir); err != nil {
		return "", fmt.Errorf("redistest: %w", err)
	}
	return dir, nil
}

// lock waits for a lock among processes. The kernel releases it when its holder dies, so
// nothing is ever left locked.
func lock(ctx context.Context, name string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	// The lock belongs to the open file, so other goroutines wait as well.
	if err := pollUntil(ctx, func() (bool, error) { return tryLock(file) }); err != nil {
		file.Close()
		return nil, fmt.Errorf("redistest: waiting for %s: %w", name, err)
	}
	return func() { file.Close() }, nil
}
