//go:build !unix

package app

// OwnFilesOnly does nothing: files have no modes here.
func OwnFilesOnly() {}
