//go:build linux && amd64

package chdb

import (
	"syscall"
	"unsafe"
)

// guarded are the signals whose handlers libchdb replaces when the engine starts. Its own SIGSEGV
// handler sleeps for minutes, which turns a nil dereference that Go would recover into a hang.
var guarded = []syscall.Signal{
	syscall.SIGABRT, syscall.SIGSEGV, syscall.SIGILL, syscall.SIGBUS, syscall.SIGSYS, syscall.SIGFPE,
	syscall.SIGTSTP, syscall.SIGTRAP, syscall.SIGURG, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT,
	syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGPROF,
}

// kernelSigaction is the kernel's struct sigaction on linux/amd64.
type kernelSigaction [32]byte

// keepSignals runs f and puts Go's signal handlers back after it.
func keepSignals(f func()) {
	saved := make([]kernelSigaction, len(guarded))
	for i, s := range guarded {
		sigaction(s, nil, &saved[i])
	}
	f()
	for i, s := range guarded {
		sigaction(s, &saved[i], nil)
	}
}

// sigaction cannot fail here: the signals are valid and may be handled.
func sigaction(s syscall.Signal, set, get *kernelSigaction) {
	const maskSize = 8
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s),
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), maskSize, 0, 0)
}
