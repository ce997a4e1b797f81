//go:build !linux

package process

import "syscall"

func endsWithParent() *syscall.SysProcAttr { return nil }
