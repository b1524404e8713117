//go:build race

package locktest

func init() { raced = 4 }
