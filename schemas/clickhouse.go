package schemas

import "embed"

// ClickHouse holds the migrations of the ClickHouse store as clickhouse/NNNN_name.sql. After the first release, a file is never edited. A
// change is a file with the next number and only adds, since binaries of the previous release run during the migration. ClickHouse has
// neither transactions over DDL nor a lock between two migrations, so each statement must be repeatable (IF [NOT] EXISTS).
//
// Each file is valid SQL as it is. With Options.Cluster the store replaces the comment "on cluster" by
// ON CLUSTER, and with Options.Replicated the comment "replicated" by Replicated.
//
//go:embed clickhouse/*.sql
var ClickHouse embed.FS
