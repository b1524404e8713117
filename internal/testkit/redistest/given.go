package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// givenSource are servers that somebody else started, and keeps.
type givenSource struct {
	urls    []string
	version string
}

// givenLimit is how long a named server may take to answer.
const givenLimit = 5 * time.Second

// openGiven asks every named server. One that does not answer is an error, since what
// was named is not replaced by something else. Nobody is starting it, so one that is away is not asked again.
func openGiven(ctx context.Context, addrs []string, e edition) (source, error) {
	g := &givenSource{}
	runs := map[string]string{} // address by what the server calls its run
	for _, a := range addrs {
		u, err := serverURL(a)
		if err != nil {
			return nil, err
		}
		s := newServer(nil, newGivenMachine(u), true)
		late := fmt.Errorf("no answer within %v", givenLimit)
		limit, cancel := context.WithTimeoutCause(ctx, givenLimit, late)
		err = s.ping(limit)
		var said redis.Error
		var timeout net.Error
		if err == nil || errors.As(err, &said) {
			err = s.ready(limit)
		} else if errors.As(err, &timeout) && timeout.Timeout() {
			err = late
		}
		cancel()
		version, run := s.Version(), s.run
		s.end()
		if err != nil {
			return nil, fmt.Errorf("REDIS_ADDRS names %s, which cannot be used: %w", s.Addr(), err)
		}
		if other, twice := runs[run]; twice && run != "" {
			return nil, fmt.Errorf("REDIS_ADDRS names %s and %s, which are one server: name each once", other, s.Addr())
		}
		runs[run] = s.Addr()
		if err := e.wrong(version, s.Addr()+", of REDIS_ADDRS"); err != nil {
			return nil, err
		}
		g.urls = append(g.urls, u)
		if g.version == "" {
			g.version = version
		}
	}
	return g, nil
}

func (*givenSource) kind() Kind { return Given }

func (g *givenSource) describe() string {
	hosts := make([]string, len(g.urls))
	for i, s := range g.urls {
		if u, err := url.Parse(s); err == nil {
			hosts[i] = u.Host // without the password
		}
	}
	return fmt.Sprintf("servers given by REDIS_ADDRS, %s at %s", g.version, strings.Join(hosts, ", "))
}

func (g *givenSource) start(_ context.Context, _ Config, place int) (instance, error) {
	if place < 0 {
		return nil, fmt.Errorf("redistest: the servers of REDIS_ADDRS are shared, and none of them is ours to break: %w; unset REDIS_ADDRS, or set REDIS_KIND=docker or process", ErrImpossible)
	}
	return newGivenMachine(g.urls[place]), nil
}

// givenMachine is the URL of a server that is not ours.
type givenMachine struct {
	at string
	refusal
}

func newGivenMachine(url string) givenMachine {
	return givenMachine{at: url, refusal: "a given server is not ours to break"}
}

func (g givenMachine) url() string { return g.at }

// failed knows nothing: only the server can say. Nor is there anything to remove.
func (givenMachine) Failed(context.Context) error { return nil }
func (givenMachine) remove(context.Context) error { return nil }

// refusal is why a machine can do nothing of this.
type refusal string

func (r refusal) err() error { return fmt.Errorf("%s: %w", string(r), ErrImpossible) }

func (r refusal) Freeze(context.Context) error                     { return r.err() }
func (r refusal) Thaw(context.Context) error                       { return r.err() }
func (r refusal) Kill(context.Context) error                       { return r.err() }
func (r refusal) Restart(context.Context) error                    { return r.err() }
func (r refusal) put(context.Context, map[string][]byte) error     { return r.err() }
func (r refusal) files(context.Context) (map[string][]byte, error) { return nil, r.err() }
func (r refusal) peer(context.Context) (string, error)             { return "", r.err() }
