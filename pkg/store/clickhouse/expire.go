package clickhouse

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
)

// maxExpired is how many threads one Expire deletes at most, with one statement for each table.
const maxExpired = 5000

// Tenants implements store.Expirer.
func (s *Store) Tenants(ctx context.Context) (tenants []string, err error) {
	err = s.each(ctx, "SELECT DISTINCT tenant FROM positions WHERE tenant != {every:String} ORDER BY tenant",
		named{"every": everyTenant}, func(r row) error {
			var tenant string
			err := r.Scan(&tenant)
			tenants = append(tenants, tenant)
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("looking for tenants: %w", err)
	}
	return tenants, nil
}

// Expire implements store.Expirer and keeps tombstones. When it returns, the threads are hidden; Sweep makes the server remove the rows.
func (s *Store) Expire(ctx context.Context, tenant string, before time.Time) (int, error) {
	var threads []string
	var versions, details []uint64
	err := s.each(ctx, selectExpired, named{"tenant": tenant, "before": before.UnixMilli(), "limit": maxExpired}, func(r row) error {
		var thread string
		var version, detail uint64
		err := r.Scan(&thread, &version, &detail)
		threads, versions, details = append(threads, thread), append(versions, version), append(details, detail)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("looking for expired threads: %w", err)
	}
	if len(threads) == 0 {
		return 0, nil
	}
	// With runs last, the next call finds the thread again after an error.
	for _, table := range append([]string{detailTable}, contentTables...) {
		of := versions
		if table == detailTable {
			of = details
		}
		if err := s.deleteThreads(ctx, table, tenant, threads, of); err != nil {
			return 0, fmt.Errorf("deleting expired threads from %s: %w", table, explain(err))
		}
	}
	return len(threads), nil
}

// deleteThreads deletes threads from a table. The statement contains their ids as literals: parameters would be part of the URL, whose
// length is limited.
func (s *Store) deleteThreads(ctx context.Context, table, tenant string, threads []string, versions []uint64) error {
	quoted, numbers := make([]string, len(threads)), make([]string, len(threads))
	for i, id := range threads {
		quoted[i], numbers[i] = "'"+inLiteral.Replace(id)+"'", strconv.FormatUint(versions[i], 10)
	}
	statement := strings.NewReplacer("$table", table, "$threads", strings.Join(quoted, ", "), "$versions",
		strings.Join(numbers, ", ")).Replace(deleteThreads)
	if table == "runs" || table == detailTable {
		statement += " AND deleted = 0"
	}
	settings := ch.Settings{"max_query_size": 16 << 20} // 5,000 ids of 512 bytes, twice, up to double the size with escapes
	if strings.HasPrefix(table, "runs") {               // without its runs a thread is not visible; contents may be deleted later
		settings["lightweight_deletes_sync"] = 1
	}
	ctx, cancel := s.writing(ctx, settings)
	defer cancel()
	return s.conn.Exec(ctx, statement, ch.Named("tenant", tenant))
}

// inLiteral escapes text for a string literal.
var inLiteral = strings.NewReplacer(`\`, `\\`, "'", `\'`, "\x00", `\0`)
