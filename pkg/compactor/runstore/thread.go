package runstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
)

// Thread reads one thread of a store.
type Thread struct {
	store *Store
	key   string
}

// Thread returns the thread of that key.
func (s *Store) Thread(key string) Thread { return Thread{s, key} }

// All returns the metadata of all runs, in no particular order.
func (t Thread) All() (runs []*fold.Metadata, err error) {
	prefix := listKey(metadataTable, t.key, "")
	err = t.store.scan(ReadThread, prefix, func(key, value []byte) error {
		if bytes.IndexByte(key[len(prefix):], '/') < len(key)-len(prefix)-1 { // an index key
			return nil
		}
		m, err := decodeMetadata(value)
		runs = append(runs, m)
		return err
	})
	return runs, err
}

// Unsealed returns the runs that are not sealed.
func (t Thread) Unsealed() (runs []*fold.Metadata, err error) {
	err = t.store.scan(ReadThread, listKey(openTable, t.key, ""), func(_, value []byte) error {
		m, _, err := decodeOpen(value)
		runs = append(runs, m)
		return err
	})
	return runs, err
}

// EndedAt returns the sealed runs that ended at or after the offset, and the one that ended last before it; all is true
// if there are no others.
func (t Thread) EndedAt(offset int64) (runs []*fold.Metadata, all bool, err error) {
	err = t.store.seek(ReadThread, listKey(endTable, t.key, ""), func(it *pebble.Iterator) error {
		before := false
		ok := it.Last()
		for ; ok && !before; ok = it.Prev() {
			before = orderOf(it.Key()) < offset
			m, err := t.follow(ReadThread, it)
			if err != nil {
				return err
			}
			runs = append(runs, m)
		}
		all = !ok
		return nil
	})
	return runs, all, err
}

// ByID returns the runs that an id may name: the run with this id, and of the sealed runs with this client run id the
// last that started before the offset and all that started later.
func (t Thread) ByID(id string, offset int64) (runs []*fold.Metadata, err error) {
	prefix := listKey(metadataTable, t.key, escape(id))
	err = t.store.seek(ReadMetadata, prefix, func(it *pebble.Iterator) error {
		ok := it.Last()
		for before := false; ok && !before && len(it.Key()) > len(prefix); ok = it.Prev() {
			before = orderOf(it.Key()) < offset
			m, err := t.follow(ReadMetadata, it)
			if err != nil {
				return err
			}
			runs = append(runs, m)
		}
		if !it.First() || len(it.Key()) > len(prefix) {
			return nil
		}
		t.store.count(ReadMetadata, 0, it.Key(), it.Value())
		m, err := decodeMetadata(it.Value())
		runs = append(runs, m)
		return err
	})
	return runs, err
}

// ByKey takes the first of the keys (lineage.Run.Keys) of a sealed run that ended before the offset. It returns the run with
// that key that started last, or nil if no key has a run.
func (t Thread) ByKey(keys []lineage.Key, offset int64) (found *fold.Metadata, err error) {
	err = t.store.seek(ReadMetadata, listKey(historyTable, t.key, ""), func(it *pebble.Iterator) error {
		for _, k := range keys {
			prefix := listKey(historyTable, t.key, string(k[:]))
			for ok := it.SeekLT(orderKey(prefix, offset)); ok && bytes.HasPrefix(it.Key(), prefix); ok = it.Prev() {
				m, err := t.follow(ReadMetadata, it)
				if err != nil {
					return err
				}
				// A run that was folded again may have had this history in an earlier record.
				if m.End < offset && slices.Contains(m.Keys(), k) {
					found = m
					return nil
				}
			}
		}
		return nil
	})
	return found, err
}

// ByMessage calls yield for one id after another, until yield returns false, with the runs that started before the offset and may have a
// message of that id as their own. One iterator serves all ids: opening one for each would cost ten times as much.
func (t Thread) ByMessage(ids []string, offset int64, yield func(runs []*fold.Metadata) (more bool, err error)) error {
	return t.store.seek(ReadMetadata, listKey(messageTable, t.key, ""), func(it *pebble.Iterator) error {
		for _, id := range ids {
			sum := messageSumOf(id)
			prefix := listKey(messageTable, t.key, string(sum[:]))
			var runs []*fold.Metadata
			for ok := it.SeekGE(prefix); ok && bytes.HasPrefix(it.Key(), prefix) && orderOf(it.Key()) < offset; ok = it.Next() {
				m, err := t.follow(ReadMetadata, it)
				if err != nil {
					return err
				}
				runs = append(runs, m)
			}
			if len(runs) == 0 {
				continue
			}
			if more, err := yield(runs); !more || err != nil {
				return err
			}
		}
		return nil
	})
}

// FirstChild returns the start of the earliest sealed child of a run.
func (t Thread) FirstChild(run string) (start int64, ok bool, err error) {
	err = t.store.seek(ReadMetadata, listKey(childTable, t.key, escape(run)), func(it *pebble.Iterator) error {
		if ok = it.First(); ok {
			start = orderOf(it.Key())
		}
		return nil
	})
	return start, ok, err
}

// Deepest returns the depth of the deepest sealed run of a branch; 0 if there is none.
func (t Thread) Deepest(branch string) (depth int, err error) {
	err = t.store.seek(ReadMetadata, listKey(tipTable, t.key, escape(branch)), func(it *pebble.Iterator) error {
		if it.Last() {
			depth = int(orderOf(it.Key()))
		}
		return nil
	})
	return depth, err
}

// ErasedBelow returns the offset below which the thread's events are erased; 0 if none are.
func (t Thread) ErasedBelow() (below int64, err error) {
	err = t.store.get(ReadThread, storeKey(erasureTable, []byte(t.key)), func(value []byte) error {
		if len(value) != 8 {
			return errCut
		}
		below = int64(binary.BigEndian.Uint64(value))
		return nil
	})
	return below, err
}

// follow returns the metadata that an index key leads to.
func (t Thread) follow(kind string, at *pebble.Iterator) (m *fold.Metadata, err error) {
	t.store.count(kind, 0, at.Key(), at.Value())
	id := escape(string(at.Value()))
	err = t.store.get(kind, listKey(metadataTable, t.key, id), func(value []byte) error {
		m, err = decodeMetadata(value)
		return err
	})
	if err == nil && m == nil {
		err = fmt.Errorf("%w: %s/%s", ErrMissing, t.key, id)
	}
	return m, err
}
