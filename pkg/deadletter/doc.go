// Package deadletter reads skein.dead-letters and retries dead letters.
//
// A dead letter is a record of skein.events that the compactor could not fold, with headers that have the reason and its position; or a
// run record whose rows the lineage store refused, with the position of the run's first event. Its key has the tenant, as on
// skein.events; a dead letter whose key cannot be parsed belongs to no tenant.
//
// Retry publishes the original record with the header skein-retry-of. So skein.events itself records the retries: no other state can
// differ from it, and a second retry finds the first.
package deadletter
