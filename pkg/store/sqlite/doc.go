// Package sqlite fulfils the store contract on one machine: one file, pure Go, nothing to install.
//
// The file is in WAL mode. One connection writes, several read; a reader sees the rows as they were
// when its call began and never waits for the writer. A commit is synced to disk before Write
// returns (synchronous=FULL), so that an offset committed afterwards never runs ahead of the data.
//
// A batch is one transaction, so the three tables of a run always agree here. The rows still carry
// their record's version and are compared on reading, as the contract asks: the same statements of
// the contract hold for a store that cannot write three tables at once.
package sqlite
