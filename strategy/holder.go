package strategy

import (
	"cmp"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// A Holder names the process that holds a lock, for people: [Options].Label says it, and [Info.Holder] reads it.
type Holder struct {
	Host  string
	PID   int
	Label string // anything else; may be empty
}

// ThisProcess is this process as a holder: Options{Label: strategy.ThisProcess("nightly").String()}.
func ThisProcess(label string) Holder {
	host, _ := os.Hostname()
	return Holder{Host: cmp.Or(host, "unknown"), PID: os.Getpid(), Label: label}
}

// String is host/pid, or host/pid/label: what [Info.Holder] reads.
func (h Holder) String() string {
	s := url.PathEscape(h.Host) + "/" + strconv.Itoa(h.PID)
	if h.Label != "" {
		s += "/" + h.Label
	}
	return s
}

// parseHolder reads what String wrote; ok is false for any other label.
func parseHolder(label string) (h Holder, ok bool) {
	host, rest, _ := strings.Cut(label, "/")
	pid, free, labelled := strings.Cut(rest, "/")
	h.Label = free
	var err, err2 error
	h.Host, err = url.PathUnescape(host)
	h.PID, err2 = strconv.Atoi(pid)
	// Written back it must be the same: "web/007" is no process.
	if err != nil || err2 != nil || h.Host == "" || h.PID < 1 || labelled && free == "" || h.String() != label {
		return Holder{}, false
	}
	return h, true
}

// Holder returns the process that holds the lock, if it has set its label.
func (i Info) Holder() (h Holder, ok bool) { return parseHolder(i.Label) }
