//go:build unix

package app

import "syscall"

// OwnFilesOnly makes new files and folders of the process readable for its own user only: folders get mode 0700, files 0600.
func OwnFilesOnly() { syscall.Umask(0o077) }
