package verify

import "github.com/skeinhq/skein/pkg/record"

// These are the bytes of memory for folding a run again: per own message, per message of its history, and per byte of
// its events and input. Buffers that grow by doubling hold the text of a record.
// TestBytes_IsAboutWhatAThreadTakesAtMost checks these values.
const (
	ownMessage  = 1<<10 + 1<<7
	heldMessage = 256
	eventByte   = 4
)

// Bytes returns an upper estimate of the memory, in bytes, for folding a run again and comparing it with its record. It
// depends only on the record, so callers can acquire the memory before they start.
func Bytes(rec *record.Run) int64 {
	n := int64(ownMessage*rec.Stats.Messages + heldMessage*rec.MessageCount + eventByte*len(rec.Input))
	for _, bytes := range rec.Stats.EventBytes {
		n += eventByte * bytes
	}
	return n
}
