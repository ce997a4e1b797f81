// Package deadletter reads skein.dead-letters and retries dead letters.
//
// A dead letter is a copy of a record of skein.events that the compactor could not fold, or of a run record whose rows the lineage store
// refused. Its headers contain the reason, and the position of the original record or of the run's first event. Its key contains the
// tenant, as on skein.events; a dead letter whose key cannot be parsed belongs to no tenant.
//
// Retry publishes the original record with the header skein-retry-of. Thus skein.events itself records the retries, with no other state
// that could differ, and a second retry finds the first.
package deadletter
