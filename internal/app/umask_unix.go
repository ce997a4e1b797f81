//go:build unix

package app

import "syscall"

// OwnFilesOnly has what the process creates from now on be readable for its own user alone, whatever the umask was that it was
// started with: folders get mode 0700, files 0600.
func OwnFilesOnly() { syscall.Umask(0o077) }
