// Package shadow folds the raw events of runs that are recorded once more, by the rules of this version,
// and says which records would come out otherwise, and where. It writes nothing and joins no group.
//
// A run's place (parent, branch, base) is taken from its record, as it was decided once and for all. What
// a run starts from is what its parent's raw events make now; so a change is followed along a thread.
package shadow
