// Package stores lets a command's flags choose the lineage store. Beside the stages' own mains it is
// the one place that knows both kinds.
package stores
