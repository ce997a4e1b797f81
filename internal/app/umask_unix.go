//go:build unix

package app

import "syscall"

// OwnFilesOnly makes new files and folders readable for the process's own user only: folders get mode 0700, files 0600.
func OwnFilesOnly() { syscall.Umask(0o077) }
