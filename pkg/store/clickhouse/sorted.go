package clickhouse

import (
	"maps"
	"slices"

	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
)

// sorted is a map that the driver writes in the order of keys. It writes a plain map in random order, and the server keeps
// that order, so two rebuilds of one record would differ.
type sorted[V any] map[string]V

// Put implements column.IterableOrderedMap.
func (m sorted[V]) Put(key, value any) { m[key.(string)] = value.(V) }

// Iterator implements column.IterableOrderedMap.
func (m sorted[V]) Iterator() column.MapIterator {
	return &sortedIterator[V]{of: m, keys: slices.Sorted(maps.Keys(m)), at: -1}
}

type sortedIterator[V any] struct {
	of   sorted[V]
	keys []string
	at   int
}

func (i *sortedIterator[V]) Next() bool { i.at++; return i.at < len(i.keys) }
func (i *sortedIterator[V]) Key() any   { return i.keys[i.at] }
func (i *sortedIterator[V]) Value() any { return i.of[i.keys[i.at]] }
