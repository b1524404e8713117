package client

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// passing begin the refusals that speak of the server's state.
var passing = []string{"BUSY ", "LOADING ", "MASTERDOWN ", "max number of clients", "NOAUTH ", "DENIED "}

// Passing reports whether a refusal speaks of the server's state, and not of what it forbids: it proves nothing about
// what the server will allow later.
func Passing(refusal error) bool {
	said := strings.TrimPrefix(refusal.Error(), "ERR ") // which some clients take off
	return slices.ContainsFunc(passing, func(p string) bool { return strings.HasPrefix(said, p) })
}

var (
	userinfo = regexp.MustCompile(`://[^\s"]*@`)
	echoed   = regexp.MustCompile(`(?s),? with args beginning with:.*`)
)

// Discreet keeps passwords out of what the making of a connection says: URLs are quoted whole in parse errors, a server
// without AUTH, or HELLO, quotes its arguments, and another may say a password in other words; empty: it is not known.
// Discreet does not wrap an error that it had to change, because the original still says it.
func Discreet(err error, password string) error {
	s := userinfo.ReplaceAllString(err.Error(), "://***@")
	s = echoed.ReplaceAllString(s, "")
	if password != "" {
		s = strings.ReplaceAll(s, password, "(password)")
	}
	if s == err.Error() {
		return err
	}
	return errors.New(s)
}
