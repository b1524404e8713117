//go:build !linux

package nodetest

// acknowledged: over the loopback interface the other side knows at once.
func acknowledged(uintptr) bool { return true }
