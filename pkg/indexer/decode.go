package indexer

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// outcome is the outcome of decoding a record, for the metric's label.
type outcome string

const (
	outcomeRun       outcome = "run"
	outcomeTombstone outcome = "tombstone"
	outcomeFence     outcome = "fence"
	outcomeProgress  outcome = "progress"
	// outcomeErasure is the record that ends a thread's erasure, after the tombstones of its runs.
	outcomeErasure outcome = "erasure"
	// outcomeDetail is a detail of a thread, or its tombstone.
	outcomeDetail outcome = "detail"
	// outcomeUnknownVersion is a record of a newer Skein, at which the partition stops.
	outcomeUnknownVersion outcome = "unknown-version"
	outcomeUndecodable    outcome = "undecodable"
)

var outcomes = []outcome{outcomeRun, outcomeTombstone, outcomeFence, outcomeProgress, outcomeErasure, outcomeDetail,
	outcomeUnknownVersion, outcomeUndecodable}

// decode decodes a record of skein.runs of a known version. The entry of a fence is empty. An error means that the record is skipped.
func decode(r *kgo.Record) (store.Entry, outcome, error) {
	h, err := record.ParseHeaders(r.Headers)
	switch {
	case err != nil:
		return store.Entry{}, outcomeUndecodable, err
	case h.Kind == record.KindFence:
		return store.Entry{}, outcomeFence, nil
	case h.Kind == record.KindErase:
		return decodeErasure(r)
	case h.Kind == record.KindThread:
		return decodeDetail(r)
	case h.Kind == record.KindProgress:
		return decodeProgress(r)
	}
	parts, err := splitKey(r, "tenant/thread/run")
	if err != nil {
		return store.Entry{}, outcomeUndecodable, err
	}
	e := store.Entry{
		Partition: r.Partition, Version: r.Offset, At: r.Timestamp.UTC(),
		Tenant: parts[0], ThreadID: parts[1], RunID: parts[2],
	}
	if len(r.Value) == 0 {
		return e, outcomeTombstone, nil
	}
	if h.Kind != record.KindRun {
		return store.Entry{}, outcomeUndecodable, fmt.Errorf("decoding record: kind %q has no place on this topic", h.Kind)
	}
	if e.Run, err = record.DecodeRun(r.Value); err != nil {
		return store.Entry{}, outcomeUndecodable, err
	}
	return e, outcomeRun, nil
}

// splitKey splits a record's key, which must have as many parts as form.
func splitKey(r *kgo.Record, form string) ([]string, error) {
	parts, err := record.SplitKey(string(r.Key))
	if err == nil && len(parts) != strings.Count(form, "/")+1 {
		err = fmt.Errorf("decoding key: %d parts, want %s", len(parts), form)
	}
	return parts, err
}

func decodeErasure(r *kgo.Record) (store.Entry, outcome, error) {
	parts, err := splitKey(r, "tenant/thread")
	if err != nil {
		return store.Entry{}, outcomeUndecodable, err
	}
	below, err := record.DecodeErased(r.Value)
	if err != nil {
		return store.Entry{}, outcomeUndecodable, err
	}
	return store.Entry{
		Partition: r.Partition, Version: r.Offset, Tenant: parts[0], ThreadID: parts[1],
		Erasure: &store.Erasure{Below: below, At: r.Timestamp.UTC().Truncate(time.Millisecond)},
	}, outcomeErasure, nil
}

func decodeDetail(r *kgo.Record) (store.Entry, outcome, error) {
	tenant, thread, name, err := record.SplitDetailKey(string(r.Key))
	if err != nil {
		return store.Entry{}, outcomeUndecodable, err
	}
	d, err := record.DecodeDetail(name, r.Value)
	if err != nil {
		return store.Entry{}, outcomeUndecodable, err
	}
	return store.Entry{Partition: r.Partition, Version: r.Offset, Tenant: tenant, ThreadID: thread, Detail: &d}, outcomeDetail, nil
}

func decodeProgress(r *kgo.Record) (store.Entry, outcome, error) {
	reached, err := record.DecodeProgress(r.Value)
	if err != nil {
		return store.Entry{}, outcomeUndecodable, err
	}
	return store.Entry{
		Partition: r.Partition, Version: r.Offset, Position: &store.Position{Next: reached.Next},
	}, outcomeProgress, nil
}
