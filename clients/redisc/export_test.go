package rediscnode

import "testing"

// ClusterForTests are the addresses of the tests' cluster.
func ClusterForTests(t testing.TB) []string { return addrs(t) }
