// Package cli is the command line "skein". It writes results to stdout and everything else to stderr. The fields of
// --json are stable and do not depend on whether stdout is a terminal; the text form may change.
package cli
