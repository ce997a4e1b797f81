package runstore

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Entry is one committed record of skein.runs. Value is nil for a tombstone; a fence, a
// detail of a thread or a progress record has no key.
type Entry struct {
	Key   []byte
	Value []byte
	// Metadata is the metadata in a run's record: see RunEntry.
	Metadata *fold.Metadata
	messages []messageSum
	// Erased is set for an erasure record, whose key is the thread's: the thread's events below Erased are erased.
	Erased int64
	// Progress is the value of a progress record.
	Progress *record.Progress
	Offset   int64
	Time     time.Time // of the record
}

// EntryOf reads a record of skein.runs.
func EntryOf(m *kgo.Record) (Entry, error) {
	if err := kafka.CheckVersion(m); err != nil {
		return Entry{}, err
	}
	switch string(m.Key) {
	case record.FenceKey: // it is about no run
		return Entry{Offset: m.Offset}, nil
	case record.ProgressKey:
		reached, err := record.DecodeProgress(m.Value)
		if err != nil {
			return Entry{}, fmt.Errorf("reading own progress record %s/%d@%d: %w", m.Topic, m.Partition, m.Offset, err)
		}
		return Entry{Offset: m.Offset, Progress: &reached}, nil
	}
	h, err := record.ParseHeaders(m.Headers)
	if err == nil && h.Kind == record.KindThread { // nor is a detail of a thread
		return Entry{Offset: m.Offset}, nil
	}
	e := Entry{Key: m.Key, Value: m.Value, Offset: m.Offset, Time: m.Timestamp}
	if err == nil && h.Kind == record.KindErase {
		e.Erased, err = record.DecodeErased(m.Value)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("reading own run record %s/%d@%d: %w", m.Topic, m.Partition, m.Offset, err)
	}
	return e, nil
}

// RunEntry returns the entry of a run's record, without offset and time. If an entry has no metadata, Apply makes them
// from the value.
func RunEntry(key string, r *record.Run, value []byte) (Entry, error) {
	m, err := fold.MetadataOf(r)
	if err != nil {
		return Entry{}, err
	}
	return Entry{Key: []byte(key), Value: value, Metadata: m, messages: messageSums(r.Messages)}, nil
}

// decoded returns the entry with its metadata.
func (e Entry) decoded() (Entry, error) {
	if e.Metadata != nil || e.Value == nil || e.Erased > 0 {
		return e, nil
	}
	r, err := record.DecodeRun(e.Value)
	if err != nil {
		return e, fmt.Errorf("reading own run record at offset %d: %w", e.Offset, err)
	}
	full, err := RunEntry(string(e.Key), r, e.Value)
	if err != nil {
		return e, fmt.Errorf("reading own run record at offset %d: %w", e.Offset, err)
	}
	full.Offset, full.Time = e.Offset, e.Time
	return full, nil
}

// put writes one entry.
func put(b *pebble.Batch, e Entry) error {
	if e.Erased > 0 {
		return putErasure(b, e)
	}
	metadataKey, openKey := metadataKey(e.Key), storeKey(openTable, e.Key)
	if e.Value == nil { // an erasure follows, which deletes the rest
		return errors.Join(b.Delete(metadataKey, nil), b.Delete(storeKey(recordTable, e.Key), nil), b.Delete(openKey, nil))
	}
	text, err := json.Marshal(e.Metadata)
	if err != nil {
		return fmt.Errorf("encoding metadata of run: %w", err)
	}
	err = errors.Join(b.Set(metadataKey, text, nil), putRecord(b, e), indexMessages(b, e))
	if !e.Metadata.Sealed {
		return errors.Join(err, b.Set(openKey, openValue(e, text), nil))
	}
	return errors.Join(err, b.Delete(openKey, nil), index(b, threadOf(e.Key), e.Metadata))
}

// openPrefix is the number of bytes before the metadata in openTable.
const openPrefix = 8

// openValue returns a value of openTable: the time of the record in milliseconds, then the metadata.
func openValue(e Entry, metadata []byte) []byte {
	value := binary.BigEndian.AppendUint64(make([]byte, 0, openPrefix+len(metadata)), uint64(e.Time.UnixMilli()))
	return append(value, metadata...)
}

func decodeOpen(value []byte) (m *fold.Metadata, recordedAt time.Time, err error) {
	if len(value) < openPrefix {
		return nil, time.Time{}, errCut
	}
	m, err = decodeMetadata(value[openPrefix:])
	return m, time.UnixMilli(int64(binary.BigEndian.Uint64(value))), err
}

// decodeMetadata reads a run's metadata, which the store has beside each record, so that resolving a parent does not read whole
// conversations.
func decodeMetadata(b []byte) (*fold.Metadata, error) {
	m := new(fold.Metadata)
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("decoding metadata of run: %w", err)
	}
	return m, nil
}

// index writes the keys that lead to a sealed run.
func index(b *pebble.Batch, thread string, m *fold.Metadata) error {
	set := func(table byte, name string, order int64) error {
		return b.Set(orderKey(listKey(table, thread, name), order), []byte(m.ID), nil)
	}
	errs := []error{set(endTable, "", m.End), set(tipTable, escape(m.Branch), int64(m.Depth))}
	if m.ClientID != "" {
		errs = append(errs, set(metadataTable, escape(m.ClientID), m.Start))
	}
	for _, k := range m.Keys() {
		errs = append(errs, set(historyTable, string(k[:]), m.Start))
	}
	if m.Parent != "" {
		errs = append(errs, set(childTable, escape(m.Parent), m.Start))
	}
	return errors.Join(errs...)
}

// indexMessages writes the keys that lead to a run by its own messages.
func indexMessages(b *pebble.Batch, e Entry) error {
	thread := threadOf(e.Key)
	for _, sum := range e.messages {
		if err := b.Set(orderKey(listKey(messageTable, thread, string(sum[:])), e.Metadata.Start), []byte(e.Metadata.ID), nil); err != nil {
			return err
		}
	}
	return nil
}

// putErasure sets the offset below which a thread is erased, and empties each table of the thread. The topic has the
// thread's tombstones before the erasure record, and the thread's later records after it. Keys that the tombstones
// delete are removed, too, as the topic may have removed a tombstone by now.
func putErasure(b *pebble.Batch, e Entry) error {
	errs := []error{b.Set(storeKey(erasureTable, e.Key), binary.BigEndian.AppendUint64(nil, uint64(e.Erased)), nil),
		b.Set(purgeKey(e.Key, e.Offset), nil, nil)}
	for _, table := range threadTables {
		from := listKey(table, string(e.Key), "")
		errs = append(errs, b.DeleteRange(from, after(from), nil))
	}
	return errors.Join(errs...)
}
