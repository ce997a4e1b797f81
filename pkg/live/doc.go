// Package live follows the open end of a thread: the raw records that no run record tells of yet.
//
//	records of the thread's runs ──▶ Thread ◀── raw records, from Thread.From on
//	                                   │
//	                                   └──▶ which run takes each of them, and that run's fold as it stands
//
// A Thread decides as the compactor will: which run a raw record belongs to, where a new run stands among the others,
// and what it starts from. It needs raw records from the first offset that some open run's record does not hold, and
// never those of runs that have ended.
package live
