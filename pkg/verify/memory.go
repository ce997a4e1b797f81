package verify

import "github.com/skeinhq/skein/pkg/record"

// What folding a run again takes of memory: for each message of its own, for each of its history, and for each byte of its events and its
// input. A record's text is written into buffers that double. TestBytes_IsAboutWhatAThreadTakesAtMost holds them.
const (
	ownMessage  = 1<<10 + 1<<7
	heldMessage = 256
	eventByte   = 4
)

// Bytes is about how much memory it takes to fold a run again and to compare it with its record, by what the record says of it: at least
// as much as it does take, so that it can be counted before.
func Bytes(rec *record.Run) int64 {
	n := int64(ownMessage*rec.Stats.Messages + heldMessage*rec.MessageCount + eventByte*len(rec.Input))
	for _, bytes := range rec.Stats.EventBytes {
		n += eventByte * bytes
	}
	return n
}
