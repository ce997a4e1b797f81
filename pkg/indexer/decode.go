package indexer

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// outcome is what became of a record; it is a metric's label.
type outcome string

const (
	outcomeRun       outcome = "run"
	outcomeTombstone outcome = "tombstone"
	outcomeFence     outcome = "fence"
	outcomeProgress  outcome = "progress"
	// outcomeErasure: a thread was erased. The tombstones before it say what goes, this that it is gone.
	outcomeErasure outcome = "erasure"
	// outcomeUnknownVersion: a newer Skein wrote the record, and the partition stopped there.
	outcomeUnknownVersion outcome = "unknown-version"
	outcomeUndecodable    outcome = "undecodable"
)

var outcomes = []outcome{outcomeRun, outcomeTombstone, outcomeFence, outcomeProgress, outcomeErasure, outcomeUnknownVersion, outcomeUndecodable}

// decode reads a record of skein.runs whose version is known. There is an entry for all kinds but a fence, and an error for a
// record that is skipped because of its data.
func decode(r *kgo.Record) (store.Entry, outcome, error) {
	h, err := kafka.ParseHeaders(r.Headers)
	switch {
	case err != nil:
		return store.Entry{}, outcomeUndecodable, err
	case h.Kind == record.KindFence:
		return store.Entry{}, outcomeFence, nil
	case h.Kind == record.KindErase:
		return decodeErasure(r)
	case h.Kind == record.KindProgress:
		return decodeProgress(r)
	}
	parts, err := record.SplitKey(string(r.Key))
	if err == nil && len(parts) != 3 {
		err = fmt.Errorf("decoding key: %d parts, want tenant/thread/run", len(parts))
	}
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

func decodeErasure(r *kgo.Record) (store.Entry, outcome, error) {
	parts, err := record.SplitKey(string(r.Key))
	if err == nil && len(parts) != 2 {
		err = fmt.Errorf("decoding key: %d parts, want tenant/thread", len(parts))
	}
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

func decodeProgress(r *kgo.Record) (store.Entry, outcome, error) {
	reached, err := record.DecodeProgress(r.Value)
	if err != nil {
		return store.Entry{}, outcomeUndecodable, err
	}
	return store.Entry{
		Partition: r.Partition, Version: r.Offset, Position: &store.Position{Next: reached.Next},
	}, outcomeProgress, nil
}
