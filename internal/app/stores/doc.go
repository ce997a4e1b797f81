// Package stores opens the lineage store that a command's flags select. It is the only package besides the binaries' mains
// that imports both stores.
package stores
