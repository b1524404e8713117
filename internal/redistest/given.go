package redistest

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
)

// givenSource are servers that somebody else started, and keeps.
type givenSource struct {
	urls    []string
	version string
}

// openGiven asks every named server. One that does not answer is an error, since what
// was named is not replaced by something else.
func openGiven(ctx context.Context, addrs []string, e edition) (source, error) {
	g := &givenSource{}
	runs := map[string]string{} // address by what the server calls its run
	for _, a := range addrs {
		u, err := serverURL(a)
		if err != nil {
			return nil, err
		}
		s := newServer(nil, givenMachine(u), true)
		limit, cancel := context.WithTimeout(ctx, 5*time.Second)
		err = s.ready(limit)
		cancel()
		version, run := s.Version(), s.run
		s.end()
		if err != nil {
			return nil, fmt.Errorf("REDIS_ADDRS names %s, which cannot be used: %w", s.Addr(), err)
		}
		if other, twice := runs[run]; twice && run != "" { // as several it would be on trial with itself
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

func (*givenSource) prepare(context.Context, io.Writer) error { return nil }

func (*givenSource) start(context.Context, Config) (machine, error) {
	return nil, fmt.Errorf("given servers are not started: %w", ErrImpossible)
}

// givenMachine is the URL of a server that is not ours.
type givenMachine string

func (g givenMachine) url() string { return string(g) }

// failed knows nothing: only asking the server tells. Nor is there anything to remove.
func (givenMachine) failed(context.Context) error { return nil }
func (givenMachine) remove(context.Context) error { return nil }

func (givenMachine) refuse() error {
	return fmt.Errorf("a given server is not ours to break: %w", ErrImpossible)
}
func (g givenMachine) freeze(context.Context) error  { return g.refuse() }
func (g givenMachine) thaw(context.Context) error    { return g.refuse() }
func (g givenMachine) kill(context.Context) error    { return g.refuse() }
func (g givenMachine) restart(context.Context) error { return g.refuse() }

func (g givenMachine) files(context.Context) (map[string][]byte, error) { return nil, g.refuse() }
func (g givenMachine) put(context.Context, map[string][]byte) error     { return g.refuse() }
func (g givenMachine) peer(context.Context) (string, error)             { return "", g.refuse() }
