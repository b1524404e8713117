// The network among members of etcd, for tests that cut one off.
package stores

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// A peering is the network among the members of a cluster: each is reached by a proxy, which reads who calls. Bytes from a member
// that is cut off, and to it, wait until it rejoins.
type peering struct {
	mu  sync.Mutex
	off map[string]chan struct{} // by the member's ID; closed when it rejoins
}

// proxy leads to the member at addr, whose ID is asked for later.
func (p *peering) proxy(t testing.TB, addr string, id func() string) string {
	s := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: addr})
			r.Out.Host = r.In.Host
		},
		FlushInterval: -1, // messages stream
		Transport:     &crossing{&http.Transport{DisableKeepAlives: true}, p, id},
		ErrorLog:      log.New(io.Discard, "", 0), // a member that is dead is no news
	})
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return strings.TrimPrefix(s.URL, "http://")
}

func (p *peering) cutOff(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off[id] = make(chan struct{})
}

func (p *peering) rejoin(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.off[id])
	delete(p.off, id)
}

// open waits until none of the members is cut off.
func (p *peering) open(ctx context.Context, members ...string) error {
	for _, id := range members {
		p.mu.Lock()
		rejoined := p.off[id]
		p.mu.Unlock()
		if rejoined == nil {
			continue
		}
		select {
		case <-rejoined:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// A crossing sends what one member asks another.
type crossing struct {
	http.RoundTripper
	p  *peering
	id func() string
}

func (c *crossing) RoundTrip(r *http.Request) (*http.Response, error) {
	from := r.Header.Get("X-Server-From")
	if from == "" { // it only looks whether somebody is there
		return c.RoundTripper.RoundTrip(r)
	}
	open := func() error { return c.p.open(r.Context(), from, c.id()) }
	if err := open(); err != nil {
		return nil, err
	}
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = answer{resp.Body, open}
	}
	return resp, err
}

// An answer may be a stream of messages, which goes on for as long as both members live.
type answer struct {
	io.ReadCloser
	open func() error
}

func (a answer) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	if late := a.open(); late != nil {
		return 0, errors.Join(late, err)
	}
	return n, err
}
