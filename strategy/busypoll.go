package strategy

import (
	"context"
	"net"
	"time"
)

// busyPollLimit is how long a connection of [BusyPoll] looks for a reply before it sleeps.
const busyPollLimit = 100 * time.Microsecond

// A DialFunc connects to a server, as [net.Dialer.DialContext] does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// BusyPoll makes connections on which who waits for a reply looks for it again and again, for
// 100 µs, before it sleeps. Where the server is near, on the same machine or in the
// same rack, most of a round trip is the time that it takes to put a processor to sleep and to
// wake it, the more so on a virtual machine: docs/performance.md has what it saves, and
// what it costs. It is for any Redis client that lets its user dial:
//
//	redis.DialContextFunc(strategy.BusyPoll(nil))     // a redis.DialOption of redigo
//	&goredis.Options{Dialer: strategy.BusyPoll(nil)}  // go-redis
//
// One goroutine of a process polls at a time, on one processor; all others read as ever. A
// connection whose replies do not come in time polls less and less, down to one of 64 reads,
// until one does: with a server that is far away, and for messages that are waited for, this
// costs next to nothing, and gains nothing. A connection never polls if there was a single
// processor (GOMAXPROCS) when it was dialled, if it is no stream of a TCP or Unix socket, or
// on systems other than Unix.
//
// dial is what connects, with its time-outs and keep-alive (redigo's DialConnectTimeout and
// DialKeepAlive have no effect beside DialContextFunc); nil: a [net.Dialer] that gives up after
// 30 s. redigo does TLS on top of it; go-redis leaves TLS to its Dialer: do the handshake over
// what this has dialled, for a connection that is encrypted already is returned as it is.
// Deadlines, Close, and all errors are as without it.
//
// Source: Linux's SO_BUSY_POLL does the like in the kernel, where drivers support that
// (https://docs.kernel.org/networking/napi.html#busy-polling); here it is the client.
func BusyPoll(dial DialFunc) DialFunc {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return polling(c), nil
	}
}
