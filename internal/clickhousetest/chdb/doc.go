// Package chdb serves ClickHouse's HTTP interface over libchdb, the real ClickHouse engine as a shared
// library, closely enough for clickhouse-go with its HTTP protocol. It is a test kit: no users, no TLS,
// no quotas, loopback only.
//
// The library is loaded without cgo. A fault inside it ends the process, so package clickhousetest runs
// it in a process of its own. What the real server does and this does not: the native TCP protocol,
// Keeper (hence Replicated engines), clusters, users, query_log, external tables, and cancelling a query
// when the client goes away (max_execution_time does end it). Results are held in memory.
package chdb
