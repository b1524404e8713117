package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithExec makes the kernel send the command SIGTERM when exec is gone, in case the watcher is gone,
// too.
func endWithExec(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }

// adoptOrphans makes what the command leaves behind our children, so that we see them end
// also where nobody else would reap them, as in a container without an init. An error says
// that the kernel is older than that.
func adoptOrphans() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
