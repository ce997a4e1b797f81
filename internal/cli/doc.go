// Package cli is the command line "skein". Results go to stdout and everything else to stderr; the
// fields of --json are the same in and out of a terminal and stay stable, text for people does not.
package cli
