//go:build race

package luascript_test

func init() { raced = 4 }
