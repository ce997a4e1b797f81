// Package fold holds the rules by which the raw records of skein.events become a run's record: which
// run a record belongs to, which event is a repeat, what is hashed and counted, and what a record says
// of a fold. The compactor applies them as events come; readers apply them again, to give back the
// events of a run and to prove its record. What only the compactor decides is not here: a run's place
// in its thread, when a record is written, and what becomes a dead letter.
//
// Everything is pure: records and histories come in as values.
package fold
