//go:build !unix

package conns

import "syscall"

// unread reports false where it cannot be known.
func unread(syscall.Conn) bool { return false }
