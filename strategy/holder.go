package strategy

import (
	"net/url"
	"os"
	"strconv"
	"strings"
)

// A Holder says for people who holds a lock: a process writes it into [Options].Label, and
// [Info.Holder] reads it. The machinery does not mind what it says.
type Holder struct {
	Host  string
	PID   int
	Label string // whatever else there is to say; may be empty
}

// ThisProcess is this process as a holder:
//
//	o := strategy.Options{Label: strategy.ThisProcess("nightly import").String()}
func ThisProcess(label string) Holder {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	return Holder{Host: host, PID: os.Getpid(), Label: label}
}

// String is host/pid, or host/pid/label: what [ParseHolder] reads. A / in the host's name is
// percent-encoded.
func (h Holder) String() string {
	s := url.PathEscape(h.Host) + "/" + strconv.Itoa(h.PID)
	if h.Label != "" {
		s += "/" + h.Label
	}
	return s
}

// ParseHolder reads what [Holder.String] wrote; ok is false for any other label.
func ParseHolder(label string) (h Holder, ok bool) {
	host, rest, ok := strings.Cut(label, "/")
	if !ok {
		return Holder{}, false
	}
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

// Holder says who holds the lock, if its label is a [Holder]'s.
func (i Info) Holder() (h Holder, ok bool) { return ParseHolder(i.Label) }
