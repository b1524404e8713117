package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

const loopback = "127.0.0.1"

// Ports lie below the range from which the usual systems take the ports of outgoing connections.
// From inside it, a client could get the port of a server that was killed and waits for its
// restart.
const (
	firstPort = 21000
	portCount = 3000
)

// ReservePort finds a free port of this machine and keeps it, also while nothing listens on it:
// no other server gets it, nor any outgoing connection, until release.
func (f *Farm) ReservePort() (port int, release func(), err error) {
	dir := filepath.Join(f.cache, "ports")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, nil, fmt.Errorf("redistest: %w", err)
	}
	start := rand.IntN(portCount)
	for i := range portCount {
		port := firstPort + (start+i)%portCount
		file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return 0, nil, fmt.Errorf("redistest: %w", err)
		}
		ours, err := tryLock(file)
		if err == nil && ours && !listens(port) {
			return port, func() { file.Close() }, nil
		}
		file.Close()
		if err != nil {
			return 0, nil, fmt.Errorf("redistest: %w", err)
		}
	}
	return 0, nil, errors.New("redistest: no free port: leftovers of earlier runs? See: docker ps -a --filter label=" + label)
}

// listens finds out whether somebody who reserves nothing has the port. To listen there would be
// surer, and could be in the way of its owner.
func listens(port int) bool {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)), time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}
