// Package fold turns raw records of skein.events into folded runs. A Loop decodes each record once and decides what is
// the same for all callers: whether a record is an event, an input, a repeat or malformed, and what is hashed and counted.
// Two types decide which run a record belongs to, and what that run starts from:
//
//   - Thread decides about new records: their run, whether they begin another run, and at a run's first event its
//     parent, branch, base and starting history. The compactor's partitions and live streams use it, each with a
//     Directory of the thread's runs.
//   - Refold reads these decisions from run records. Verify and timeline use it to fold recorded runs again.
//
// A Table contains the runs of a thread and finds the run of a raw record; both types have one. Outcomes only returns
// the outcomes of a recorded run's events. Resume continues an open run from its record, and Fill makes the record.
// Three decisions belong to the compactor and are not here: when a record is written, when a run expires, and what
// becomes a dead letter.
//
// The package is pure: records and histories are passed in as values.
package fold
