package schemas

import "embed"

// ClickHouse holds the migrations of the ClickHouse store as clickhouse/NNNN_name.sql. From the first release on, a file is never edited; a
// change is a file with the next number, and only adds, since binaries of the last release go on while it runs. ClickHouse has no
// transactions over DDL and no lock between two that migrate: each statement must be one that can run again (IF [NOT] EXISTS).
//
// Each file is valid SQL as it is. The store puts ON CLUSTER in the place of the comment "on cluster",
// and Replicated in the place of "replicated", where it is told to.
//
//go:embed clickhouse/*.sql
var ClickHouse embed.FS
