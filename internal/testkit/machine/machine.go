// Package machine runs servers for tests on this machine, as containers or as processes: redistest has those of Redis, storetest
// those of PostgreSQL and etcd. It finds, pulls or builds images, unpacks Debian's packages, reserves ports, and sees to it
// that containers, processes and directories go with their owner, also if that is killed (see reaper.go).
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Loopback is where servers listen.
const Loopback = "127.0.0.1"

// StartLimit is generous: a loaded machine with two cores takes seconds to start a container, and a server that is up earlier is
// used earlier.
const StartLimit = 60 * time.Second

// ErrPortTaken says that somebody who does not ask for our reservations was quicker.
var ErrPortTaken = errors.New("its port is taken")

// Host is this machine as one of its users sees it. The zero value is not usable: see NewHost.
type Host struct {
	Log   io.Writer // progress of slow work
	cache string    // a directory that all processes of the user share

	mu  sync.Mutex
	dir string // the parent of the servers' directories
}

// NewHost makes the cache directory: the given one, or for "" locks-redistest in the user's cache. A nil log is none.
func NewHost(cache string, log io.Writer) (*Host, error) {
	if log == nil {
		log = io.Discard
	}
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("cache directory: %w; name one in REDIS_CACHE_DIR", err)
		}
		cache = filepath.Join(base, "locks-redistest")
	}
	cache, err := filepath.Abs(cache)
	if err == nil {
		err = os.MkdirAll(cache, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("cache directory: %w; set REDIS_CACHE_DIR to one that you can write", err)
	}
	return &Host{Log: log, cache: cache}, nil
}

// NewDir makes a directory for one server, which ends with the host at the latest.
func (h *Host) NewDir() (dir string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir == "" {
		if h.dir, err = os.MkdirTemp("", "locks-redistest-"); err == nil {
			err = reapLater(h.dir)
		}
	}
	if err == nil {
		dir, err = os.MkdirTemp(h.dir, "server-")
	}
	return dir, err
}

// Close removes the servers' directories.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir == "" {
		return nil
	}
	return os.RemoveAll(h.dir)
}

// ended is the error of a server that does not run: how it ended, and the end of its log, where the reason is.
func ended(how, log string) error {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	err := fmt.Errorf("%s; its last words:\n%s", how, strings.Join(lines[max(0, len(lines)-15):], "\n"))
	if strings.Contains(strings.ToLower(log), "address already in use") {
		return fmt.Errorf("%w: %w", ErrPortTaken, err)
	}
	return err
}

// Poll calls fn until it is done or fails, ever less often, up to every 50 ms.
func Poll(ctx context.Context, fn func() (done bool, err error)) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		done, err := fn()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}
