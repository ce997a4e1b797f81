package record

import (
	"encoding/json"
	"fmt"
	"time"
)

// erased is the value of an erasure record.
type erased struct {
	Below *int64 `json:"below"`
}

// EncodeErased returns the value of an erasure record, whose key is a thread's: every event of the thread below that
// offset of skein.events is erased and never folded again.
//
// An erasure record follows the tombstones of all runs with such events.
func EncodeErased(below int64) []byte { return fmt.Appendf(nil, `{"below":%d}`, below) }

const (
	// ErasedLocallyAfter is the delay after an erasure before a compactor removes the thread's bytes from the files of its
	// local store. Many erasures together cost little more than one.
	ErasedLocallyAfter = 10 * time.Minute
	// ErasedLocallyWithin is the time after an erasure within which those bytes are removed, as receipts promise; it
	// includes some minutes for rewriting files.
	ErasedLocallyWithin = 15 * time.Minute
)

// DecodeErased reads the value of an erasure record. It ignores members that it does not know.
func DecodeErased(b []byte) (below int64, err error) {
	var e erased
	if err := json.Unmarshal(b, &e); err != nil {
		return 0, fmt.Errorf("decoding erasure record: %w", err)
	}
	if e.Below == nil || *e.Below < 0 {
		return 0, fmt.Errorf("decoding erasure record: below is missing or negative")
	}
	return *e.Below, nil
}
