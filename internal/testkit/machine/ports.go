package machine

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Ports lie below the range from which the usual systems take the ports of outgoing connections.
// From inside it, a client could get the port of a server that was killed and waits for its
// restart.
const (
	firstPort = 21000
	portCount = 3000
)

// ReservePort finds a free port of this machine and keeps it, also while nothing listens on it:
// no other server gets it, nor any outgoing connection, until release.
func (h *Host) ReservePort() (port int, release func(), err error) {
	dir := filepath.Join(h.cache, "ports")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, nil, err
	}
	start := rand.IntN(portCount)
	for i := range portCount {
		port := firstPort + (start+i)%portCount
		file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return 0, nil, err
		}
		ours, err := tryLock(file)
		if err == nil && ours && !Listens(port) {
			return port, func() { file.Close() }, nil
		}
		file.Close()
		if err != nil {
			return 0, nil, err
		}
	}
	return 0, nil, errors.New("no free port: leftovers of earlier runs? See: docker ps -a --filter label=" + Label)
}

// Listens finds out whether somebody who reserves nothing has the port. To listen there would be
// surer, and could be in the way of its owner.
func Listens(port int) bool {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(Loopback, strconv.Itoa(port)), time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}
