// Package clickhouse is the lineage store for production: ClickHouse, over its native protocol or over HTTP.
//
// # Why it converges
//
// A row is a pure function of one record of skein.runs, and its version is that record's offset. All tables are ReplacingMergeTree on
// that version, so rows that are written twice, by two writers, by a retry or after reading a record again, become one. Deduplication
// tokens only save work in a retry; nothing relies on them. They contain a hash of the rows, because ClickHouse silently drops a
// block with a known token, even if its rows differ.
//
// A tombstone is a row of runs with deleted = 1. It wins over every older record, even one that is written again later, and is kept.
// After writing it, the store deletes older rows of the run and of its contents. It uses a lightweight DELETE, which the server
// acknowledges first and executes later. If a record from before the tombstone is read again, its rows may return to messages and
// states, where they do not count; the same reader then reads the tombstone and deletes them again. So the end of the log determines
// the result, and a tombstone never deletes a later run with the same id.
//
// # What a reader sees
//
// Rows of messages and states count only if their version is that of the run's row, and only if all rows of that version are there.
// The run's row has their number; without it, some of the rows could look like all of them. Contents are written before the rows of
// runs, so on one server a sealed run has its contents. On replicas the tables may arrive in any order, and an answer leaves out
// incomplete contents.
//
// # Errors
//
// Errors of the server and the network become ErrUnavailable, ErrDenied or ErrSchemaOld. The same call succeeds once the cause is
// gone. The pool reconnects; a Store never has to be opened again.
package clickhouse
