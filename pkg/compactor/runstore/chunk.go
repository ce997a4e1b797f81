package runstore

import (
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// chunkBytes is how much of a record is stored under one key. To find that a key is missing, Pebble unpacks a whole
// block, which is at least as large as its largest value. With megabytes under one key, the reads of each new thread
// that met such a block took milliseconds (BenchmarkThread_NotThere).
const chunkBytes = 32 << 10

// putRecord writes a run's record in chunks. Further chunks of an earlier, longer record of the run stay until the thread is erased;
// nobody reads them.
func putRecord(b *pebble.Batch, e Entry) error {
	recordKey := storeKey(recordTable, e.Key)
	first := e.Value[:min(len(e.Value), chunkBytes)]
	op := b.SetDeferred(len(recordKey), 8+len(first))
	copy(op.Key, recordKey)
	binary.BigEndian.PutUint64(op.Value, uint64(len(e.Value)))
	copy(op.Value[8:], first)
	if err := op.Finish(); err != nil {
		return err
	}
	number := 0
	for chunk := range slices.Chunk(e.Value[len(first):], chunkBytes) {
		number++
		if err := b.Set(chunkKey(recordKey, number), chunk, nil); err != nil {
			return err
		}
	}
	return nil
}

// Record returns the latest committed record of a known run, and its size.
func (s *Store) Record(key string) (r *record.Run, size int, err error) {
	recordKey := storeKey(recordTable, []byte(key))
	var begun []byte // the beginning of a record with further chunks
	err = s.get(ReadRecord, recordKey, func(value []byte) error {
		if len(value) < 8 {
			return errCut
		}
		size, value = int(binary.BigEndian.Uint64(value)), value[8:]
		switch {
		case size < len(value) || size > kafka.MaxBatchBytes: // no larger one was on the topic
			return errCut
		case size > len(value):
			begun = append(make([]byte, 0, size), value...)
			return nil
		}
		r, err = record.DecodeRun(value)
		return err
	})
	if err == nil && begun != nil {
		r, err = s.largeRecord(recordKey, begun, size)
	}
	if err == nil && r == nil {
		err = s.checkSound([]byte(key), ErrMissing)
	}
	return r, size, err
}

// largeRecord completes a record with its further chunks.
func (s *Store) largeRecord(recordKey, value []byte, size int) (r *record.Run, err error) {
	err = s.seek(ReadRecord, append(recordKey, '/'), func(it *pebble.Iterator) error {
		number := 0
		for ok := it.First(); ok && len(value) < size; ok = it.Next() {
			s.count(ReadRecord, 0, it.Key(), it.Value())
			if number++; orderOf(it.Key()) != int64(number) {
				break
			}
			value = append(value, it.Value()...)
		}
		if len(value) != size {
			return errCut
		}
		r, err = record.DecodeRun(value)
		return err
	})
	return r, err
}
