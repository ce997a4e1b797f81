// Package shadow folds the raw events of runs that are recorded once more, by the rules of this version. It joins no group, and
// writes nothing but requests (Ask): records are the compactor's to write.
//
// A Verifier holds each run's record against what its raw events make, and decides the run's place (parent, branch, base)
// again. A run starts from what the records say of those before it, so each record is judged by itself.
//
// A Thread says which records would come out otherwise by now, and where; the compactor writes them anew with the same code (Anew). It
// takes places from the records, as they were decided once and for all, and what a run starts from is what its parent's
// raw events make now: so a change is followed along a thread.
package shadow
