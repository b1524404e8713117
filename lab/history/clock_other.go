//go:build !linux

package history

import "time"

func startNow() time.Duration { return 0 }
