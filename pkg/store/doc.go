// Package store is the contract of the lineage store: the indexer writes it, the query stage reads it. Package sqlite implements it for
// one machine, package clickhouse for production; package storetest is the test suite of both.
//
// Every row is a pure function of one record of skein.runs, and its version is that record's offset. Writing records repeatedly, in any
// batches and any order, converges to the same rows.
package store
