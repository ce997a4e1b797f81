// Package fold turns raw records of skein.events into folded runs. A Loop decodes each record once and decides what does not depend on the
// caller: what is an event or an input, a repeat or malformed, and what is hashed and counted. One of two types decides which run a record
// belongs to, and what that run starts from:
//
//   - Thread decides about new records: which run a record means, whether it begins another one, and at a run's first event its parent,
//     branch, base and starting history. The compactor's partitions and live streams use it, each with a Directory of the thread's runs.
//   - Refold takes all of that from run records. Verify and timeline use it to fold recorded runs again.
//
// A Table holds the runs of a thread and answers which one a raw record means; both types have one. Outcomes finds only what became of
// the events of a recorded run. Resume continues a run from the record of an open one, and Fill makes the record. Decisions of the
// compactor alone are not here: when a record is written, when a run expires, and what becomes a dead letter.
//
// Everything is pure: records and histories come in as values.
package fold
