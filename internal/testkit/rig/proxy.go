package rig

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Proxy stands before a server and passes on the commands that it knows, as twemproxy and Envoy do.
type Proxy struct {
	Addr string

	target string
	kind   ProxyKind
	ln     net.Listener

	mu    sync.Mutex
	conns []net.Conn
	over  bool
	work  sync.WaitGroup
}

// A ProxyKind is what a proxy does not pass on.
type ProxyKind struct {
	Name    string
	Unknown []string // commands
	HangsUp bool     // it ends a connection on which one comes; otherwise it answers with an error
}

// The limits of two proxies, as their documentation has them: notes/redis.md of twemproxy, and the page of Envoy's
// Redis proxy. Both send a script to the server of its first key.
var (
	Twemproxy = ProxyKind{Name: "twemproxy", HangsUp: true, Unknown: []string{"CLIENT", "HELLO", "PING", "AUTH", "QUIT", "INFO", "SCRIPT", "CONFIG", "CLUSTER",
		"TIME", "SUBSCRIBE", "UNSUBSCRIBE", "PUBLISH", "WATCH", "UNWATCH", "MULTI", "EXEC", "DISCARD", "WAIT", "GETEX", "SELECT", "ROLE", "ECHO"}}
	Envoy = ProxyKind{Name: "Envoy", Unknown: []string{"CLIENT", "HELLO", "SUBSCRIBE", "UNSUBSCRIBE", "TIME", "WAIT"}}
)

// NewProxy starts a proxy before the server at target.
func NewProxy(target string, kind ProxyKind) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, wrap(err)
	}
	p := &Proxy{Addr: ln.Addr().String(), target: target, kind: kind, ln: ln}
	p.work.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() { p.serve(client) })
		}
	})
	return p, nil
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.ln.Close()
	p.mu.Lock()
	p.over = true
	for _, c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.work.Wait()
}

// keeps notes a connection, which Close ends, and reports whether the proxy goes on.
func (p *Proxy) keeps(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, c)
	return !p.over
}

// serve passes on one command after the other, each with its reply.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.keeps(client) || !p.keeps(server) {
		return
	}
	from, back := bufio.NewReader(client), bufio.NewReader(server)
	for {
		command, err := readValue(from)
		if err != nil {
			return
		}
		name := strings.ToUpper(string(strings.SplitN(string(command), "\r\n", 4)[2]))
		reply := fmt.Appendf(nil, "-ERR unknown command '%s'\r\n", strings.ToLower(name))
		switch unknown := slices.Contains(p.kind.Unknown, name); {
		case unknown && p.kind.HangsUp:
			return
		case !unknown:
			if _, err := server.Write(command); err != nil {
				return
			}
			if reply, err = readValue(back); err != nil {
				return
			}
		}
		if _, err := client.Write(reply); err != nil {
			return
		}
	}
}

// readValue reads one value of RESP2, as it is.
func readValue(r *bufio.Reader) ([]byte, error) {
	raw, err := r.ReadBytes('\n')
	if err != nil || raw[0] != '$' && raw[0] != '*' {
		return raw, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(raw[1:])))
	if err != nil {
		return nil, err
	}
	if raw[0] == '$' && n >= 0 {
		text := make([]byte, n+2)
		_, err := io.ReadFull(r, text)
		return append(raw, text...), err
	}
	for ; raw[0] == '*' && n > 0; n-- {
		part, err := readValue(r)
		if err != nil {
			return nil, err
		}
		raw = append(raw, part...)
	}
	return raw, nil
}
