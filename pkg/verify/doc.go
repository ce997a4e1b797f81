// Package verify folds the raw events of recorded runs again, by the rules of this version. It is pure: records of skein.events and run
// records come in as values.
//
// A Thread compares each run's record with what its raw events make, and resolves the run's parent (parent, branch, base)
// again. A run starts from what the records say of those before it, so each record is judged by itself.
//
// A Rewriter says which records would come out otherwise by now, and where; the compactor replaces them with what it makes. It
// takes lineage from the records, and what a run starts from is what its parent's
// raw events make now: so a change is followed along a thread.
package verify
