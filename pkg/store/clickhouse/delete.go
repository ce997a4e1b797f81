package clickhouse

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/skeinhq/skein/pkg/store"
)

// deletion has the tombstones of one statement, as lists of equal length: runs, or threads without a run, and the versions below which
// their rows are deleted. They share a statement because each DELETE makes the server scan all parts of the table.
type deletion struct {
	tenants, threads, runs []string
	versions               []uint64
	bytes                  int
}

// deletionsOf returns the deletions for all entries that delete, even if the run or thread has a newer record: only older rows are deleted.
func deletionsOf(entries []store.Entry, deletes func(store.Entry) bool) []*deletion {
	below := map[runKey]uint64{}
	for _, e := range entries {
		if deletes(e) {
			k := keyOf(e)
			below[k] = max(below[k], uint64(e.Version))
		}
	}
	var all []*deletion
	for _, k := range slices.SortedFunc(maps.Keys(below), runKey.compare) {
		size := len(k.tenant) + len(k.thread) + len(k.run)
		if len(all) == 0 || all[len(all)-1].bytes+size > idBytes {
			all = append(all, &deletion{})
		}
		d := all[len(all)-1]
		d.tenants, d.threads, d.runs = append(d.tenants, k.tenant), append(d.threads, k.thread), append(d.runs, k.run)
		d.versions = append(d.versions, below[k])
		d.bytes += size
	}
	return all
}

// compare orders runs as the tables' sorting keys do.
func (k runKey) compare(o runKey) int {
	return cmp.Or(strings.Compare(k.tenant, o.tenant), strings.Compare(k.thread, o.thread), strings.Compare(k.run, o.run),
		strings.Compare(k.detail, o.detail))
}

// delete deletes the rows that are older than tombstones. It returns when the server has stored the deletion. The server hides
// the rows soon after, and removes them from disk with the next merge of their parts.
//
// It does not check first whether such rows exist: a replica that lags may receive them later, and would then keep them.
func (s *Store) delete(ctx context.Context, b *batch) error {
	for _, d := range b.deletions {
		for _, table := range contentTables {
			statement := strings.Replace(deleteOlder, "$table", table, 1)
			if err := s.deleteRows(ctx, statement, d, ch.Named("runs", d.runs)); err != nil {
				return fmt.Errorf("deleting from %s: %w", table, explain(err))
			}
		}
	}
	for _, d := range b.erased {
		if err := s.deleteRows(ctx, deleteDetails, d); err != nil {
			return fmt.Errorf("deleting from %s: %w", detailTable, explain(err))
		}
	}
	return nil
}

// detailTable is the table with the details of threads.
const detailTable = "thread_details"

// contentTables are the tables with rows of runs; runs is the last.
var contentTables = []string{"messages", "states", "tool_calls", "interrupts", "answers", "runs_by_time", "runs"}

func (s *Store) deleteRows(ctx context.Context, statement string, d *deletion, more ...any) error {
	ctx, cancel := s.writing(ctx, nil)
	defer cancel()
	return s.conn.Exec(ctx, statement, append(more,
		ch.Named("tenants", d.tenants),
		ch.Named("threads", d.threads),
		ch.Named("versions", d.versions),
	)...)
}
