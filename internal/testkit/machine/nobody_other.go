//go:build !linux

package machine

import "os/exec"

// nobody owns files for containers, which are Linux's.
const nobody = 65534

// becomeNobody does nothing: a server that does not run as root says so.
func becomeNobody(*exec.Cmd) {}
