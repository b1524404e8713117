// Tests how much memory a lease takes.
package engine

import (
	"testing"
	"unsafe"
)

// TestLeaseSize: Go allocates a lease in 512 bytes. A byte more would take 576, for each lock held.
func TestLeaseSize(t *testing.T) {
	if size := unsafe.Sizeof(lease{}); size > 512 {
		t.Errorf("a lease takes %d bytes, want 512 at most", size)
	}
}
