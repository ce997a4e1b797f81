// Package sqlite is the lineage store for one machine: one file, pure Go, nothing to install.
//
// The file is in WAL mode. One connection writes, several read. A reader sees the rows as of the start of its call and never waits for
// the writer. A commit is synced to disk before Write returns (synchronous=FULL), so that offsets committed after that are never ahead
// of the data.
//
// A batch is one transaction, so the tables of a run always agree. Rows still have their record's version, and readers compare it, as
// the contract requires for stores that cannot write several tables at once.
package sqlite
