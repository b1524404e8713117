//go:build race

package fairqueue_test

func init() { raced = 4 }
