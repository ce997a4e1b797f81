package clickhouse

import (
	"embed"
	"slices"
)

//go:embed sql
var files embed.FS

// statement returns the text of a file of the folder sql.
func statement(name string) string {
	text, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // the files are embedded
	}
	return string(text)
}

// The statements. Values are the server's parameters, {name:Type}, and never become SQL.
var (
	selectThread      = statement("thread")
	selectLineage     = statement("lineage")
	selectRun         = statement("run")
	selectStates      = statement("states")
	selectMessages    = statement("messages")
	selectHolding     = statement("holding")
	selectThreads     = statement("threads")
	selectInterrupted = statement("interrupted")
	selectDetails     = statement("details")
	selectErasure     = statement("erasure")
	selectPositions   = statement("positions")
	selectSources     = statement("sources")
	selectColumns     = statement("columns")
	selectTables      = statement("tables")
	selectErased      = statement("erased")
	selectExpired     = statement("expired")
	selectMasked      = statement("masked")
	selectUnfinished  = statement("unfinished")
	deleteOlder       = statement("delete_older")
	deleteDetails     = statement("delete_details")
	deleteThreads     = statement("delete_threads")
)

// The statements that depend on a filter's conditions. Templates insert names of parameters, never values.
var (
	selectSearch     = lookup(statement("selected"), statement("search"))
	selectStatistics = lookup(statement("selected"), statement("statistics"))
)

// idBytes bounds the ids in one statement. Over HTTP they are part of the URL, in which a byte may take three, and servers and
// proxies limit URLs to 64 KiB or more.
const idBytes = 12 << 10

// idChunks splits ids into parts for one statement each.
func idChunks(ids []string) [][]string {
	const perID = 4 // quotes, comma
	var chunks [][]string
	for len(ids) > 0 {
		n, bytes := 1, len(ids[0])
		for n < len(ids) && bytes+len(ids[n])+perID <= idBytes {
			bytes += len(ids[n]) + perID
			n++
		}
		chunks, ids = append(chunks, slices.Clone(ids[:n])), ids[n:]
	}
	return chunks
}
