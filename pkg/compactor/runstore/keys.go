package runstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// The tables of a store; a key is the table's letter, a slash, and:
//
//	"h" record key "/":           a run's metadata
//	"r" record key:               its record, after the record's size; of a large one its beginning
//	"r" record key "/" number:    further chunks of a large record
//	"o" record key:               the metadata again, of runs that are not sealed, after the record's time
//	"e" thread key:               the offset below which the thread is erased
//
//	"p" thread key "/" offset:    that what was deleted of a thread is to leave the files; without a key, all that was deleted
//
// and beside them "meta" and "purged". The parts of record keys are escaped, so a thread's keys are exactly those that begin with its
// key and "/".
//
// Sealed runs do not change any more. Further keys lead to the run's id, so that a thread of any size is read with a few short reads.
// All begin with the thread's key and "/", and end with a number of eight bytes by which they are in order:
//
//	"h" … client run id "/" start: of a run that is kept under another id than its client's
//	"k" … history key, start:      by its history
//	"l" … end:                     by its end
//	"c" … parent "/" start:        by its parent
//	"b" … branch "/" depth:        by its branch (depth alone counts)
//
// The same way, of runs that are not sealed, too:
//
//	"m" … message sum, start:      by its own messages; an earlier record of the run may have had the message
const (
	openTable     = 'o'
	metadataTable = 'h'
	recordTable   = 'r'
	historyTable  = 'k'
	endTable      = 'l'
	childTable    = 'c'
	tipTable      = 'b'
	messageTable  = 'm'
	erasureTable  = 'e'
	purgeTable    = 'p'
)

// threadTables are the tables with keys of threads.
var threadTables = []byte{metadataTable, recordTable, openTable, historyTable, endTable, childTable, tipTable, messageTable}

var (
	followedKey = []byte("meta")
	purgedKey   = []byte("purged") // is written so that something is
)

func storeKey(table byte, key []byte) []byte {
	return append([]byte{table, '/'}, key...)
}

// metadataKey returns the key of a run's metadata. It ends with a slash, so that the index keys with the same id are
// next to it.
func metadataKey(key []byte) []byte { return append(storeKey(metadataTable, key), '/') }

// listKey returns the prefix of a table's keys that belong to a thread and, unless it is empty, a name.
func listKey(table byte, threadKey, name string) []byte {
	key := append(append(make([]byte, 0, len(threadKey)+len(name)+12), table, '/'), threadKey...)
	key = append(key, '/')
	if name != "" {
		key = append(append(key, name...), '/')
	}
	return key
}

// orderKey appends the number that orders such keys; orderOf returns it.
func orderKey(prefix []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(slices.Clip(prefix), uint64(n))
}

// chunkKey returns the key of a further chunk of a large record, from 1.
func chunkKey(recordKey []byte, number int) []byte {
	return orderKey(append(slices.Clip(recordKey), '/'), int64(number))
}

func orderOf(key []byte) int64 { return int64(binary.BigEndian.Uint64(key[len(key)-8:])) }

// after returns the first key after those with the prefix.
func after(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	end[len(end)-1]++
	return end
}

func escape(id string) string { return record.EscapeKeyPart(id) }

func threadOf(recordKey []byte) string {
	return string(recordKey[:bytes.LastIndexByte(recordKey, '/')])
}

// messageSum is a hash of a message's id, used in the keys that lead to runs by it.
type messageSum [8]byte

func messageSumOf(id string) messageSum {
	sum := sha256.Sum256([]byte(id)) // so that no choice of ids leads to many runs
	return messageSum(sum[:])
}

func messageSums(messages []agui.Message) []messageSum {
	sums := make([]messageSum, len(messages))
	for i, m := range messages {
		sums[i] = messageSumOf(m.ID)
	}
	return sums
}
