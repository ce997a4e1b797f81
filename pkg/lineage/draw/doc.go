// Package draw draws the runs of a thread: Picture is the one layout of lanes, and Text and Mermaid render it. The
// command line and the query stage use it; code that folds or stores runs does not.
//
// Ids and statuses may be any text: the output escapes what would move a cursor, change the writing direction or end the line.
package draw
