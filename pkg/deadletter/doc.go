// Package deadletter reads skein.dead-letters and publishes what lies there again.
//
// A dead letter is a record of skein.events that the compactor could do nothing with, as it came, with
// headers that say why and from where; or a run record whose rows the lineage store refused, with the position of the
// run's first event. Whose it is says its key, as on skein.events; one whose key cannot be read is nobody's.
//
// Retry publishes the original record with the header skein-retry-of. So skein.events itself says what
// was retried: there is no other state that could differ from it, and a second retry sees the first.
package deadletter
