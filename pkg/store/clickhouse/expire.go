package clickhouse

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
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

// mostExpired bounds the threads that one Expire deletes, by one statement for each table: each goes over all parts.
const mostExpired = 5000

// Tenants implements store.Expirer.
func (s *Store) Tenants(ctx context.Context) (tenants []string, err error) {
	err = s.each(ctx, "SELECT DISTINCT tenant FROM positions WHERE tenant != {every:String} ORDER BY tenant", named{"every": everyTenant}, func(scan scan) error {
		var tenant string
		err := scan(&tenant)
		tenants = append(tenants, tenant)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for tenants: %w", err)
	}
	return tenants, nil
}

// Expire implements store.Expirer. Rows are hidden when it returns; Sweep has the server remove them from its disk. Tombstones stay.
func (s *Store) Expire(ctx context.Context, tenant string, before time.Time) (int, error) {
	var threads []string
	var versions []uint64
	err := s.each(ctx, selectExpired, named{"tenant": tenant, "before": before.UnixMilli(), "limit": mostExpired}, func(scan scan) error {
		var thread string
		var version uint64
		err := scan(&thread, &version)
		threads, versions = append(threads, thread), append(versions, version)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("looking for expired threads: %w", err)
	}
	if len(threads) == 0 {
		return 0, nil
	}
	for _, table := range contentTables { // runs last: while it has the thread, the next call finds what is left
		if err := s.deleteThreads(ctx, table, tenant, threads, versions); err != nil {
			return 0, fmt.Errorf("deleting expired threads from %s: %w", table, explain(err))
		}
	}
	return len(threads), nil
}

// deleteThreads names the threads in the statement itself: as parameters they would be part of a URL, which is short.
func (s *Store) deleteThreads(ctx context.Context, table, tenant string, threads []string, versions []uint64) error {
	quoted, numbers := make([]string, len(threads)), make([]string, len(threads))
	for i, id := range threads {
		quoted[i], numbers[i] = "'"+inLiteral.Replace(id)+"'", strconv.FormatUint(versions[i], 10)
	}
	statement := strings.NewReplacer("$table", table, "$threads", strings.Join(quoted, ", "), "$versions", strings.Join(numbers, ", ")).Replace(deleteThreads)
	if table == "runs" {
		statement += " AND deleted = 0"
	}
	settings := ch.Settings{"max_query_size": 16 << 20} // 5,000 ids of 512 bytes, twice, which may double when they are escaped
	if strings.HasPrefix(table, "runs") {               // readers see a thread by its runs; contents may go a little later
		settings["lightweight_deletes_sync"] = 1
	}
	ctx, cancel := s.writing(ctx, settings)
	defer cancel()
	return s.conn.Exec(ctx, statement, ch.Named("tenant", tenant))
}

// inLiteral escapes what a string literal cannot hold as it is.
var inLiteral = strings.NewReplacer(`\`, `\\`, "'", `\'`, "\x00", `\0`)
