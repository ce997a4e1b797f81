//go:build !unix

package app

// OwnFilesOnly does nothing where files have no modes.
func OwnFilesOnly() {}
