// Package migrate copies a topic set into a new one with another partition count.
//
// It copies raw events first, each thread's in order, with their old positions in the header skein-copied-from. Once nothing writes to
// the old set any more, it copies run records with new positions, snapshots and dead letters, and commits offsets for the new compactors.
// So a run whose raw events are gone keeps its record, and nothing is decided again. docs/adr/007-migrate.md has the reasons.
//
// Each transaction of copied records also writes how far the copy is, to a topic of its own. So after a kill, the next call continues
// there and copies no record twice.
package migrate
