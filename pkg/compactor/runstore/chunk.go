package runstore

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// chunkBytes is how much of a record is stored under one key. Pebble unpacks a whole block to find that a key is not in
// it, and a block is at least as large as its largest value: with records of megabytes under one key, each new thread
// whose reads met one took milliseconds (BenchmarkThread_NotThere).
const chunkBytes = 32 << 10

// chunksOf returns the number of chunks of a record of that size.
func chunksOf(size int) int { return max(1, (size+chunkBytes-1)/chunkBytes) }

// putRecord writes a run's record in chunks, and deletes further chunks of an earlier, longer record of the run.
func (s *Store) putRecord(b *pebble.Batch, e Entry) error {
	recordKey, chunks := storeKey(recordTable, e.Key), chunksOf(len(e.Value))
	first := e.Value[:min(len(e.Value), chunkBytes)]
	if err := b.Set(recordKey, append(binary.BigEndian.AppendUint64(nil, uint64(len(e.Value))), first...), nil); err != nil {
		return err
	}
	for number := 1; number < chunks; number++ {
		chunk := e.Value[number*chunkBytes : min(len(e.Value), (number+1)*chunkBytes)]
		if err := b.Set(chunkKey(recordKey, number), chunk, nil); err != nil {
			return err
		}
	}
	return s.setChunks(b, e.Key, chunks, e.Metadata.Sealed)
}

// deleteRecord deletes the record of a run.
func (s *Store) deleteRecord(b *pebble.Batch, key []byte) error {
	return errors.Join(b.Delete(storeKey(recordTable, key), nil), s.setChunks(b, key, 1, true))
}

// setChunks sets the number of chunks of a run's record, and deletes further ones that it had.
func (s *Store) setChunks(b *pebble.Batch, key []byte, chunks int, sealed bool) error {
	for number := chunks; number < s.chunks[string(key)]; number++ {
		if err := b.Delete(chunkKey(storeKey(recordTable, key), number), nil); err != nil {
			return err
		}
	}
	if chunks > 1 && !sealed {
		s.chunks[string(key)] = chunks
	} else {
		delete(s.chunks, string(key))
	}
	return nil
}

// loadChunks reads which unsealed runs have a record of several chunks: their next one may have fewer.
func (s *Store) loadChunks() error {
	prefix := storeKey(openTable, nil)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		if len(it.Value()) < openPrefix {
			return errors.Join(errCut, it.Close())
		}
		if chunks := int(binary.BigEndian.Uint32(it.Value()[8:])); chunks > 1 {
			s.chunks[string(it.Key()[len(prefix):])] = chunks
		}
	}
	return it.Close()
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
