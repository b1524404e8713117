package machine

import (
	"os/exec"
	"syscall"
)

// nobody is the user that every Linux has for what owns nothing.
const nobody = 65534

// becomeNobody starts cmd in a user namespace of its own, in which it is nobody. Its files are ours.
func becomeNobody(cmd *exec.Cmd) {
	us := []syscall.SysProcIDMap{{ContainerID: nobody, HostID: 0, Size: 1}}
	cmd.SysProcAttr.Cloneflags, cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = syscall.CLONE_NEWUSER, us, us
}
