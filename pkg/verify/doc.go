// Package verify folds the raw events of recorded runs again, by the current rules. It is pure: callers pass records of
// skein.events and run records as values.
//
// A Thread compares each run's record with the result of the run's raw events. It also resolves the run's parent, branch and
// base again. A run starts from the recorded history of its parent, so each record is verified independently.
//
// Thread.Changes finds the records that the current rules would change. It takes the lineage from the records. A run
// starts from the new result of its parent's raw events, so a change carries over to later runs of the thread.
package verify
