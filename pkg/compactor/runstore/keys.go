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
//	"p" thread key "/" offset:    a mark that deleted data of the thread must leave the files; without a thread key, all deleted data
//
// and a single key, "meta". The parts of record keys are escaped, so a thread's keys are exactly those that begin with
// its key and "/".
//
// Sealed runs do not change any more. Further keys find a run's id, so that a thread of any size is read with a few short reads. All
// begin with the thread's key and "/", and end with an eight-byte number that orders them:
//
//	"h" … client run id "/" start: finds a run whose id differs from its client run id
//	"k" … key, start:              finds a run by its history or an interrupt (lineage.Run.Keys)
//	"l" … end:                     finds a run by its end
//	"c" … parent "/" start:        finds a run by its parent
//	"b" … branch "/" depth:        finds a run by its branch (depth alone counts)
//
// Keys of the same form also exist for runs that are not sealed:
//
//	"m" … message sum, start:      finds a run by its own messages; an earlier record of the run may have had the message
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

var followedKey = []byte("meta")

func storeKey(table byte, key []byte) []byte {
	return append([]byte{table, '/'}, key...)
}

// metadataKey returns the key of a run's metadata. It ends with a slash, so that the index keys with the same id are
// next to it.
func metadataKey(key []byte) []byte { return append(storeKey(metadataTable, key), '/') }

// listKey returns the prefix of a table's keys that belong to a thread and, unless name is empty, to that name.
func listKey(table byte, threadKey, name string) []byte {
	key := append(append(make([]byte, 0, len(threadKey)+len(name)+12), table, '/'), threadKey...)
	key = append(key, '/')
	if name != "" {
		key = append(append(key, name...), '/')
	}
	return key
}

// orderKey returns the prefix with a number appended, by which keys with this prefix sort. orderOf returns the number of such a key.
func orderKey(prefix []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(slices.Clip(prefix), uint64(n))
}

// chunkKey returns the key of a further chunk of a large record; the numbers begin at 1.
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

// messageSum is a hash of a message's id. The keys that find runs by a message contain it.
type messageSum [8]byte

func messageSumOf(id string) messageSum {
	sum := sha256.Sum256([]byte(id)) // so that nobody can choose ids with the same sum
	return messageSum(sum[:])
}

func messageSums(messages []agui.Message) []messageSum {
	sums := make([]messageSum, len(messages))
	for i, m := range messages {
		sums[i] = messageSumOf(m.ID)
	}
	return sums
}
