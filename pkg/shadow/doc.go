// Package shadow folds the raw events of runs that are recorded once more, by the rules of this version,
// and says which records would come out otherwise, and where. It joins no group, and writes nothing but requests
// (Ask): records are the compactor's to write, which folds a thread with the same code (Thread, Anew).
//
// A run's place (parent, branch, base) is taken from its record, as it was decided once and for all. What
// a run starts from is what its parent's raw events make now; so a change is followed along a thread.
package shadow
