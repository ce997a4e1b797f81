package clickhouse

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
)

var (
	//go:embed sql/expired.sql
	selectExpired string
	//go:embed sql/delete_threads.sql
	deleteThreads string
)

// mostExpired bounds the threads that one Expire deletes: a few hundred go with one statement for each table, and each statement goes over all parts.
const mostExpired = 5000

// Expire implements store.Expirer. Rows are hidden when it returns; Sweep has the server remove them from its disk. Tombstones stay.
func (s *Store) Expire(ctx context.Context, tenant string, before time.Time) (int, error) {
	var threads []string
	versions := map[string]uint64{}
	err := s.each(ctx, selectExpired, named{"tenant": tenant, "before": before.UnixMilli(), "limit": mostExpired}, func(scan scan) error {
		var thread string
		var version uint64
		err := scan(&thread, &version)
		threads, versions[thread] = append(threads, thread), version
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("looking for expired threads: %w", err)
	}
	expired := 0
	for _, ids := range idChunks(threads) {
		of := make([]uint64, len(ids))
		for i, id := range ids {
			of[i] = versions[id]
		}
		for _, table := range contentTables { // runs last: while it has the thread, the next call finds what is left
			if err := s.deleteThreads(ctx, table, tenant, ids, of); err != nil {
				return expired, fmt.Errorf("deleting expired threads from %s: %w", table, explain(err))
			}
		}
		expired += len(ids)
	}
	return expired, nil
}

func (s *Store) deleteThreads(ctx context.Context, table, tenant string, threads []string, versions []uint64) error {
	statement := strings.Replace(deleteThreads, "$table", table, 1)
	if table == "runs" {
		statement += " AND deleted = 0"
	}
	settings := ch.Settings{}
	if strings.HasPrefix(table, "runs") { // readers see a thread by its runs; contents may go a little later
		settings["lightweight_deletes_sync"] = 1
	}
	ctx, cancel := s.writing(ctx, settings)
	defer cancel()
	return s.conn.Exec(ctx, statement, ch.Named("tenant", tenant), ch.Named("threads", threads), ch.Named("versions", versions))
}
