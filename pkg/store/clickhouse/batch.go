package clickhouse

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// batch has the rows of some entries. It depends on the entries only: the same entries make the same blocks, in the same order,
// with the same tokens.
type batch struct {
	from       string        // the records of the entries (spans), for tokens and errors
	ofRuns     []store.Entry // the entries of runs, for runRows
	messages   []*messageRow
	states     []*stateRow
	toolCalls  []*toolCallRow
	interrupts []*interruptRow
	answers    []*answerRow
	erasures   []*erasureRow
	details    []*detailRow
	positions  []*positionRow
	deletions  []*deletion
	erased     []*deletion // of details
}

// runKey identifies a run; without one an erasure of a thread, or the detail of a thread.
type runKey struct{ tenant, thread, run, detail string }

func keyOf(e store.Entry) runKey {
	k := runKey{tenant: e.Tenant, thread: e.ThreadID, run: e.RunID}
	if e.Detail != nil {
		k.detail = e.Detail.Name
	}
	return k
}

func newBatch(entries []store.Entry) (*batch, error) {
	newest, err := newestOf(entries)
	if err != nil {
		return nil, err
	}
	b := &batch{from: spans(entries)}
	for _, e := range newest {
		if e.Erasure != nil {
			b.erasures = append(b.erasures, &erasureRow{
				Tenant: e.Tenant, ThreadID: e.ThreadID, Below: e.Erasure.Below, At: clamp(e.Erasure.At), Version: uint64(e.Version),
			})
			continue
		}
		if e.Detail != nil {
			b.details = append(b.details, newDetailRow(e))
			continue
		}
		b.ofRuns = append(b.ofRuns, e)
		if e.Run == nil || e.Run.Status == record.StatusRunning {
			continue
		}
		b.messages = messageRows(b.messages, e, 0, e.Run.Messages)
		b.messages = messageRows(b.messages, e, 1, e.Run.InputMessages)
		b.messages = messageRows(b.messages, e, 2, store.ErrorTexts(e.Run))
		b.states = append(b.states, &stateRow{
			Tenant: e.Tenant, ThreadID: e.ThreadID, RunID: e.RunID,
			Version: uint64(e.Version), State: string(e.Run.State),
		})
		b.addFacts(e)
	}
	b.positions = positionsOf(entries)
	b.deletions = deletionsOf(entries, store.Entry.Tombstone)
	b.erased = deletionsOf(entries, func(e store.Entry) bool { return e.Erasure != nil })
	return b, nil
}

// runRows builds the rows of runs. This takes longer than all other rows, which insertContents writes at the same time.
func (b *batch) runRows() ([]*runRow, error) {
	rows := make([]*runRow, len(b.ofRuns))
	for i, e := range b.ofRuns {
		var err error
		if rows[i], err = newRunRow(e); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// newestOf returns each run's newest entry, and the newest erasure and details of each thread, without positions, in the order of the
// tables' keys. Rows of older entries would have no effect.
func newestOf(entries []store.Entry) ([]store.Entry, error) {
	newest := make(map[runKey]store.Entry, len(entries))
	for _, e := range entries {
		if e.Version < 0 || e.Version > math.MaxInt64-1 {
			return nil, fmt.Errorf("writing record %d:%d of skein.runs: this is no offset", e.Partition, e.Version)
		}
		if e.Position != nil {
			continue
		}
		k := keyOf(e)
		if have, ok := newest[k]; !ok || e.Version >= have.Version {
			newest[k] = e
		}
	}
	sorted := slices.Collect(maps.Values(newest))
	slices.SortFunc(sorted, func(a, b store.Entry) int {
		return keyOf(a).compare(keyOf(b))
	})
	return sorted, nil
}

// everyTenant is the tenant in those rows of the table positions that cover all tenants. No real tenant's id is empty.
const everyTenant = ""

// positionsOf returns, for each tenant and partition, the greatest raw.next of the runs and, for everyTenant and each partition,
// the greatest position.
func positionsOf(entries []store.Entry) []*positionRow {
	type key struct {
		tenant    string
		partition int32
	}
	next := map[key]uint64{}
	for _, e := range entries {
		k, end := key{everyTenant, e.Partition}, int64(-1)
		switch {
		case e.Position != nil:
			end = e.Position.Next
		case e.Run != nil:
			k, end = key{e.Tenant, e.Run.Raw.Partition}, e.Run.Raw.Next
		}
		if end >= 0 {
			next[k] = max(next[k], uint64(end))
		}
	}
	rows := make([]*positionRow, 0, len(next))
	for k, n := range next {
		rows = append(rows, &positionRow{Tenant: k.tenant, RawPartition: k.partition, RawNext: n})
	}
	slices.SortFunc(rows, func(a, b *positionRow) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), cmp.Compare(a.RawPartition, b.RawPartition))
	})
	return rows
}

// spans describes the records of entries as "partition:first-last+count", for each partition.
func spans(entries []store.Entry) string {
	type span struct {
		first, last int64
		count       int
	}
	of := map[int32]span{}
	for _, e := range entries {
		s, ok := of[e.Partition]
		if !ok {
			s = span{first: e.Version, last: e.Version}
		}
		of[e.Partition] = span{min(s.first, e.Version), max(s.last, e.Version), s.count + 1}
	}
	var parts []string
	for _, p := range slices.Sorted(maps.Keys(of)) {
		s := of[p]
		parts = append(parts, fmt.Sprintf("%d:%d-%d+%d", p, s.first, s.last, s.count))
	}
	return strings.Join(parts, ",")
}
