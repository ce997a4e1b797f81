package schemas

import "embed"

// SQLite holds the migrations of the SQLite store as sqlite/NNNN_name.sql. After the first release, a file is never edited. A change is a
// file with the next number.
//
//go:embed sqlite/*.sql
var SQLite embed.FS
