package schemas

import "embed"

// SQLite holds the migrations of the SQLite store as sqlite/NNNN_name.sql. From the first release on, a file is never edited; a change is a
// file with the next number.
//
//go:embed sqlite/*.sql
var SQLite embed.FS
