// Package adopt makes the stages accept a topic set that was mirrored to another cluster.
//
// Records on skein.runs name offsets of skein.events, and the progress records name that topic by its id; so compactors refuse a mirror.
// Run proves the latest run records of each partition by the mirrored events, keeps the offsets of events that the mirror lacks from being
// used again, and writes progress records with the new id: a new epoch. docs/adr/030-adopt.md has the reasons.
package adopt
