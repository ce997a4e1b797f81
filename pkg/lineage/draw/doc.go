// Package draw draws the runs of a thread: Picture is the one layout of lanes, Text and Mermaid render it. It is for the
// command line and query; what folds and stores runs needs no picture.
//
// Ids and statuses may be any text: nothing of it moves a cursor, turns the direction of writing or leaves the line.
package draw
