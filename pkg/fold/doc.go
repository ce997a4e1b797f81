// Package fold is the one loop that turns raw records of skein.events into folded runs. A Loop decodes each record once and decides what is an
// event or an input, a repeat or malformed, and what is hashed and counted. Its callers (Runs) say which run a record belongs to, and what a run
// starts from: the compactor as events come; readers later, to return the events of a run and to verify its record. Decisions of the
// compactor alone are not here: parent resolution, when a record is written, and what becomes a dead letter.
//
// Everything is pure: records and histories come in as values.
package fold
