// A test needs this: it tests that a Locker forgets runs.
package gocronlocks

// Runs returns how many runs l remembers.
func (l *Locker) Runs() (n int) {
	l.runs.Range(func(_, _ any) bool { n++; return true })
	return n
}
