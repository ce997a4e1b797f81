// Package store is the contract of the lineage store, which the indexer writes and the query stage reads. Package sqlite implements the
// contract for one machine, package clickhouse for production; package storetest tests both.
//
// Every row is a pure function of one record of skein.runs, and its version is that record's offset. Writing records repeatedly, in any
// batches and any order, converges to the same rows.
package store
