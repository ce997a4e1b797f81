// Package stores opens the lineage store of a command's flags. Besides the binaries' mains it is the only package that imports
// both stores.
package stores
