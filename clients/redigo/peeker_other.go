//go:build !unix

package redigonode

// readable knows nothing here: a connection at rest is trusted for probeAfter.
func readable(uintptr) bool { return false }
