//go:build !linux

package e2e_test

import "syscall"

func endsWithParent() *syscall.SysProcAttr { return nil }
