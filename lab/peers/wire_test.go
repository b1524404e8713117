package main

// The counter of requests on the wire, with streams that are cut at every place.

import (
	"strings"
	"testing"
)

// TestRespCounter cuts a stream into pieces of every size: the count must not depend on it.
func TestRespCounter(t *testing.T) {
	const stream = "*1\r\n$4\r\nPING\r\n" +
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$14\r\n*2\r\n$3\r\nGET\r\n$\r\n" + // a value that looks like requests
		"*2\r\n$3\r\nGET\r\n$0\r\n\r\n" +
		"*2\r\n$4\r\nECHO\r\n$12\r\n\n*1\r\n*1\r\n*\r\r\n"
	for size := 1; size <= len(stream); size++ {
		var r respCounter
		got := 0
		for rest := stream; rest != ""; {
			n := min(size, len(rest))
			got += r.feed([]byte(rest[:n]))
			rest = rest[n:]
		}
		if got != 4 {
			t.Errorf("in pieces of %d: %d requests, want 4", size, got)
		}
	}
}

func TestRespCounterLarge(t *testing.T) {
	value := strings.Repeat("*1\r\n", 1000)
	stream := "*2\r\n$4\r\nECHO\r\n$4000\r\n" + value + "\r\n"
	var r respCounter
	if got := r.feed([]byte(strings.Repeat(stream, 5))); got != 5 {
		t.Errorf("%d requests, want 5", got)
	}
}
