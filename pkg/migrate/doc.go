// Package migrate copies a topic set into a new one of another partition count.
//
// Raw events are copied first, each thread's in their order, and carry where they lay in the header
// skein-copied-from. Once nothing is written to the old set any more, run records follow with their
// positions told anew, then snapshots and dead letters, and the new compactors' place. So a run whose raw
// events are gone keeps its record, and nothing is decided a second time. docs/adr/007-migrate.md has the
// reasons.
//
// Everything is copied in transactions that also hold how far the copy is, in a topic of its own. So it
// goes on after a kill, and nothing is there twice.
package migrate
