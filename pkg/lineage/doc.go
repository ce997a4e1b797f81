// Package lineage answers the questions of "git for conversations": which run a run continues,
// what its history is, where branches fork and what differs between two runs. It is pure: runs,
// inputs and offsets come in as values.
//
//	placing      Thread finds a new run's parent, branch, depth, root and base
//	reading      Graph walks the runs of a thread: chains, tips, branches, common ancestors
//	restoring    Restore, StartHistory and FullInput build histories and inputs from stored contents
//	comparing    Diff compares two histories; Patch makes the JSON Patch between two values
//
// Everything is iterative and safe on hostile data: chains of 100,000 runs, parents that do not
// exist, cycles, ids of any text.
package lineage
