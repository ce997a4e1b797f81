package clickhouse

import (
	_ "embed"
	"slices"
)

// The statements. Values are the server's parameters, {name:Type}, and never become SQL.
var (
	//go:embed sql/thread.sql
	selectThread string
	//go:embed sql/lineage.sql
	selectLineage string
	//go:embed sql/run.sql
	selectRun string
	//go:embed sql/states.sql
	selectStates string
	//go:embed sql/messages.sql
	selectMessages string
	//go:embed sql/holding.sql
	selectHolding string
	//go:embed sql/threads.sql
	selectThreads string
	//go:embed sql/interrupted.sql
	selectInterrupted string
	//go:embed sql/erasure.sql
	selectErasure string
	//go:embed sql/positions.sql
	selectPositions string
	//go:embed sql/sources.sql
	selectSources string
	//go:embed sql/columns.sql
	selectColumns string
	//go:embed sql/delete_older.sql
	deleteOlder string

	//go:embed sql/selected.sql
	selectedText string
	//go:embed sql/search.sql
	searchText string
	//go:embed sql/statistics.sql
	statisticsText string
)

// The statements that depend on a filter's conditions. Templates insert names of parameters, never values.
var (
	selectSearch     = lookup(selectedText, searchText)
	selectStatistics = lookup(selectedText, statisticsText)
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
