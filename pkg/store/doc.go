// Package store is the contract of the lineage store: what the indexer writes and the query stage
// reads. Package sqlite fulfils it on one machine, package clickhouse in production; package
// storetest is the suite that both pass.
//
// Every row is a pure function of one record of skein.runs, and its version is that record's
// offset. Writing a record twice, in any batch and any order, therefore converges to the same rows.
package store
