package redistest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

const loopback = "127.0.0.1"

// Ports lie below the range from which the usual systems take the ports of outgoing
// connections. From inside it, a client could be given the port of a server that was
// killed and waits for its restart.
const (
	firstPort = 21000
	portCount = 3000
)

// reservePort finds a free port and keeps other redistest processes from taking it
// until release, also while nothing listens on it.
func (c cache) reservePort() (port int, release func(), err error) {
	dir, err := c.ports()
	if err != nil {
		return 0, nil, fmt.Errorf("redistest: %w", err)
	}
	start := rand.IntN(portCount)
	for i := range portCount {
		port := firstPort + (start+i)%portCount
		file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return 0, nil, fmt.Errorf("redistest: %w", err)
		}
		if ok, err := tryLock(file); err != nil || !ok {
			file.Close()
			if err != nil {
				return 0, nil, fmt.Errorf("redistest: %w", err)
			}
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
		if err != nil {
			file.Close() // somebody who is none of us has it
			continue
		}
		EndListening(l)
		return port, func() { file.Close() }, nil
	}
	return 0, nil, errors.New("redistest: no free port: leftovers of earlier runs? See: docker ps -a --filter label=" + label)
}

// ports is where reservations are. They are of the machine's ports, so those who have a cache
// of their own look there, too: to try a port is to take it for a moment, and it may be that of
// a server that is about to come back.
func (c cache) ports() (dir string, err error) {
	if base, err := os.UserCacheDir(); err == nil {
		dir := filepath.Join(base, usualCache, "ports")
		if os.MkdirAll(dir, 0o755) == nil {
			return dir, nil
		}
	}
	dir = c.path("ports") // where nobody has a home
	return dir, os.MkdirAll(dir, 0o755)
}
