package history

import "time"

var (
	start = time.Now()
	zero  = startNow() // what Now's clock showed at start
)

// Now reads the clock of histories. On Linux that is CLOCK_MONOTONIC, the same for all
// processes of the machine to within a microsecond; elsewhere it counts from the start
// of this process, so histories of several processes must not be merged there. Setting
// the time of day does not move it, and it stops while the machine is suspended.
func Now() time.Duration { return At(time.Now()) }

// At says what [Now] shows at t: for deadlines of leases. t must have a monotonic
// reading. Now and At go by the same reading, so a deadline that a lease has not reached
// is not reached by Now either.
func At(t time.Time) time.Duration { return zero + t.Sub(start) }
