// Package live follows the end of a thread: the raw records that no run record covers yet.
//
//	records of the thread's runs ──▶ Thread ◀── raw records, from Thread.From on
//	                                   │
//	                                   └──▶ the run of each record, and the current fold of that run
//
// A Thread makes the decisions that the compactor will make: which run a raw record belongs to, the parent and branch
// of a new run, and the history that it starts from. It needs raw records from the lowest offset that the record of an
// open run does not cover, and none of runs that have ended.
package live
