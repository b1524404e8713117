package nemesis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstrategies/locks/lab/history"
)

// outage is what a history calls a time in which a client had no majority of the servers:
// nobody has to get a lock then by it.
const outage = "no majority"

// outages finds them. A server is out of a client's reach while a fault of its own lasts, or
// one of the way to it, and as much longer as an attempt takes that had begun.
func outages(ops []history.Op, servers int) []history.Op {
	type change struct {
		at     time.Duration
		server int
		by     int // faults
	}
	all := map[string][]change{} // by process
	for _, op := range ops {
		if op.Kind != history.KindFault {
			all[process(op)] = all[process(op)]
		}
	}
	for _, f := range ops {
		if f.Kind != history.KindFault || f.Note == Slow || kindOf(f).place == atClient {
			continue
		}
		var server int
		if _, err := fmt.Sscan(f.Note[strings.LastIndexByte(f.Note, ' ')+1:], &server); err != nil {
			continue
		}
		for p := range all {
			if f.Client == "" || f.Client == p {
				all[p] = append(all[p], change{f.Start, server, 1}, change{f.End + opTimeout, server, -1})
			}
		}
	}
	var found []history.Op
	for p, changes := range all {
		slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), b.by-a.by) })
		broken, faults := 0, map[int]int{} // by server
		var since time.Duration
		for _, c := range changes {
			before := broken
			if faults[c.server] == 0 {
				broken++
			}
			if faults[c.server] += c.by; faults[c.server] == 0 {
				broken--
			}
			most := (servers - 1) / 2 // that a majority can do without
			switch {
			case before <= most && broken > most:
				since = c.at
			case before > most && broken <= most:
				found = append(found, history.Op{Kind: history.KindFault, Note: outage, Client: p, Start: since, End: c.at})
			}
		}
	}
	return found
}

// process is the seat of who did something.
func process(op history.Op) string {
	p, _, _ := strings.Cut(op.Client, ".")
	return p
}

// hinders reports whether a client of several servers may be kept from the lock by a fault: by
// what is done to itself, by an outage, or by a slow machine. One broken
// server of them is no such fault.
func hinders(f history.Op, client string) bool {
	seat := process(history.Op{Client: client})
	switch {
	case f.Note == Slow:
		return true
	case f.Note == outage, kindOf(f).place == atClient:
		return f.Client == seat
	}
	return false
}
