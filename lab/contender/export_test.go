package contender

// PID is that of a contender in a process of its own.
func PID(c *Contender) int { return c.seat.(*process).cmd.Process.Pid }
