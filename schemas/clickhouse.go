package schemas

import "embed"

// ClickHouse holds the migrations of the ClickHouse store as clickhouse/NNNN_name.sql. A file that was
// released is never edited; a change is a file with the next number. ClickHouse has no transactions
// over DDL and no lock between two that migrate: each statement must be one that can run again
// (IF [NOT] EXISTS, OR REPLACE VIEW). From the first release on a file only adds, since binaries of the last release go on while it runs; before
// it one does not: 0011 drops a column, and an indexer that is older than it waits, with an error that says so.
//
// Each file is valid SQL as it is. The store puts ON CLUSTER in the place of the comment "on cluster",
// and Replicated in the place of "replicated", where it is told to.
//
//go:embed clickhouse/*.sql
var ClickHouse embed.FS
