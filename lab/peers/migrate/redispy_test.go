package migrate

// A lock of redis-py, in a process of its own. Without python3 and its module redis, nothing is shown of it.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

var redisPyIsThere = sync.OnceValue(func() error {
	return exec.Command("python3", "-c", "import redis").Run()
})

type redisPyPeer struct {
	in  io.WriteCloser
	out *bufio.Scanner
}

func newRedisPyPeer(t *testing.T, servers []*redistest.Server, key string) peer {
	t.Helper()
	if err := redisPyIsThere(); err != nil {
		t.Skipf("NOT PROVEN: that redis-py excludes us, as python3 -c 'import redis' fails: %v", err)
	}
	cmd := exec.Command("python3", "redispy.py", servers[0].URL(), key, fmt.Sprint(ttl.Seconds()))
	in, err := cmd.StdinPipe()
	nilError(t, "its input", err)
	out, err := cmd.StdoutPipe()
	nilError(t, "its output", err)
	nilError(t, "its start", cmd.Start())
	t.Cleanup(func() {
		in.Close() // ends it
		if err := cmd.Wait(); err != nil {
			t.Errorf("redis-py: %v", err)
		}
	})
	p := &redisPyPeer{in, bufio.NewScanner(out)}
	if !p.out.Scan() {
		t.Fatal("redis-py does not start")
	}
	return p
}

// do returns redis-py's reply: ok, taken, or the words of its exception.
func (p *redisPyPeer) do(command string) (string, error) {
	if _, err := io.WriteString(p.in, command+"\n"); err != nil {
		return "", err
	}
	if !p.out.Scan() {
		return "", errors.Join(errors.New("redis-py has ended"), p.out.Err())
	}
	reply := p.out.Text()
	if reply != "ok" && reply != "taken" {
		return "", errors.New(strings.TrimSpace(reply))
	}
	return reply, nil
}

func (p *redisPyPeer) try(context.Context) (bool, error) {
	reply, err := p.do("try")
	return reply == "taken", err
}

func (p *redisPyPeer) extend(context.Context) error {
	_, err := p.do("extend")
	return err
}

func (p *redisPyPeer) release(context.Context) error {
	_, err := p.do("release")
	return err
}
