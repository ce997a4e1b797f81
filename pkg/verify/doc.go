// Package verify folds the raw events of recorded runs again, by the rules of this version. It is pure: records of skein.events and run
// records come in as values.
//
// A Thread compares each run's record with what its raw events make, and resolves the run's parent, branch and base again. A run
// starts from the recorded history of its parent, so each record is verified by itself.
//
// Thread.Changes finds the records that differ under the current rules. It takes lineage from the records, and a run starts from what
// its parent's raw events make now, so a change is followed along a thread.
package verify
