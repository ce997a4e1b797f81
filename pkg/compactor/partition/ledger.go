package partition

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// ledger has what the next transaction writes for a partition, and how far the partition is read, processed and committed.
type ledger struct {
	id     int32
	cfg    Config
	topics kafka.Topics
	store  *runstore.Store

	progress  Progress // of the next transaction; the processed offset moves with each record
	committed Progress // of the last one
	next      int64    // the next record to read
	clock     streamClock
	gap       *gap // nil: there is none to pass

	room    *Room // of the transaction that outputs go into
	outputs []Output
	sent    int   // of the outputs: see Send
	cuts    []Cut // since the last transaction
	// differing are the repetitions with other bytes since then.
	differing []Repetition
	counts    Counts
	unsaved   unsaved
}

// rebuilds reports whether the next record is below the processed offset. If so, only a run's own events may end it: its later events may
// also be below the processed offset, and would then be in neither its record nor a dead letter.
func (l *ledger) rebuilds() bool { return l.next < l.progress.Processed }

// write puts an output into the next transaction.
func (l *ledger) write(o Output) {
	l.outputs = append(l.outputs, o)
	l.room.outputs.Add(int64(-o.bytes()))
}

// runOutput returns the output of a run's encoded record, with the same metadata that a process would read from the record.
func (l *ledger) runOutput(key string, rec *record.Run, value []byte, kind string) (*Output, error) {
	entry, err := runstore.RunEntry(key, rec, value)
	if err != nil {
		return nil, err
	}
	return &Output{Record: l.record(l.topics.Runs, key, value, record.KindRun, rec.RunID), Kind: kind, entry: entry}, nil
}

// record returns a record of a derived topic. Only records of a run have a run id.
func (l *ledger) record(topic, key string, value []byte, kind record.Kind, runID string) *kgo.Record {
	return &kgo.Record{
		Topic: topic, Partition: l.id, Key: []byte(key), Value: value,
		Headers: kafka.Headers(record.Headers{Kind: kind, RunID: runID, Seq: -1}),
	}
}

// tombstone returns the output that deletes the record of a key.
func (l *ledger) tombstone(topic string, kind record.Kind, key string) Output {
	o := Output{Kind: outputTombstone, Record: l.record(topic, key, nil, kind, "")}
	if kind == record.KindRun {
		o.entry.Key = []byte(key)
	}
	return o
}

// countAnomalies counts anomalies for the metric. It does nothing below the processed offset, where they were counted before.
func (l *ledger) countAnomalies(m *message, rules []string) {
	if m.rebuilds {
		return
	}
	for _, rule := range rules {
		l.counts.Anomalies[rule]++
	}
}
