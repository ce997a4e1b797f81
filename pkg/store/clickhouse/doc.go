// Package clickhouse is the lineage store in production: ClickHouse, by its native protocol or by HTTP.
//
// # Why it converges
//
// A row is a pure function of one record of skein.runs, and its version is that record's offset. All
// tables are ReplacingMergeTree on that version, and what two writers, a retry or a re-reading write
// twice is one row. Deduplication tokens only save the work of a retry; nothing rests on them. They
// hold a hash of the rows, so that no two different blocks share one: ClickHouse drops the second
// silently.
//
// A tombstone is a row of runs with deleted = 1, and so it wins over every older record, however late
// that is written again. It stays. Then the contents of older versions, and the older rows of the run,
// are deleted (lightweight DELETE, bounded by the tombstone's version, carried out by the server after
// it was acknowledged). If a record from before the
// tombstone is read again, its rows may come back into messages and states, where they do not count;
// but whoever reads that record reads the tombstone after it, and deletes again. So the end of the log
// always leaves the same, and a run that is written anew after its tombstone is never touched.
//
// # What a reader sees
//
// Rows of messages and states count only where their version is that of the run's row, and only if all
// rows of that version are there; the row of runs says how many. Without the count a reader that comes
// between two versions could see a part of the older one as the whole. Contents are written before the
// rows of runs, so on one server a sealed run has its contents; on replicas, tables may arrive in any
// order, and a run whose contents are not whole yet is left out of the answer.
//
// # Errors
//
// Errors of the server and of the network are weather: ErrUnavailable, ErrDenied, ErrSchemaOld say
// which, and the same call succeeds once that is over. The pool connects anew by itself; a Store never
// has to be opened again.
package clickhouse
