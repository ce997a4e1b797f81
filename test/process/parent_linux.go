package process

import "syscall"

// endsWithParent kills a process when the test is gone before its Cleanup, as after a timeout.
func endsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
