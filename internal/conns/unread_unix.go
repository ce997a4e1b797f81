//go:build unix

package conns

import "syscall"

// unread reports whether the connection's caller has sent something that nobody has read yet.
func unread(c syscall.Conn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false // it is closed
	}
	n := 0
	err = raw.Control(func(fd uintptr) { // unlike Read, it does not wait for who reads already
		n, _, _ = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
	})
	return err == nil && n > 0
}
