package lineage

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
)

// Key identifies a history by the ids, in order, of the messages that a client would send as input. Activities do not
// count, as clients do not send them, nor do messages that the fold named itself (compact.MadeByThinking), as clients
// have other ids for them. Histories with one key have the same ids.
//
// A key is a chain of hashes, so one pass over a history gives the keys of all its prefixes. The zero Key is the empty
// history.
type Key [16]byte

// KeyOf returns the key of a history.
func KeyOf(messages []agui.Message) Key { return Key{}.Extend(messages) }

// Extend returns the key of the history that results from appending messages to the one that k identifies. Its cost
// depends on these messages alone.
func (k Key) Extend(messages []agui.Message) Key {
	var buf []byte
	for _, m := range messages {
		if counts(m) {
			k, buf = k.next(m.ID, buf)
		}
	}
	return k
}

// counts reports whether a message counts in a history's key.
func counts(m agui.Message) bool { return !isActivity(m) && !compact.MadeByThinking(m) }

// next appends one id. It uses SHA-256, so that nobody can choose ids that give another history's key. buf is reused
// between calls.
func (k Key) next(id string, buf []byte) (Key, []byte) {
	buf = append(buf[:0], k[:]...)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(id)))
	buf = append(buf, id...)
	sum := sha256.Sum256(buf)
	return Key(sum[:len(k)]), buf
}

// interruptKey returns the key by which a run with an interrupt of this id is found.
func interruptKey(id string) Key {
	k, _ := Key{}.next("interrupt", nil)
	k, _ = k.next(id, nil)
	k[0] = ^k[0] // that of no history
	return k
}

// Keys returns the keys by which an ended run is found as the parent of others: that of its history, and those of its interrupts.
func (r *Run) Keys() []Key {
	keys := make([]Key, 0, 1+len(r.Interrupts))
	if !r.HistoryKey.IsZero() {
		keys = append(keys, r.HistoryKey)
	}
	for _, id := range r.Interrupts {
		keys = append(keys, interruptKey(id))
	}
	return keys
}

// IsZero reports whether k is the key of the empty history.
func (k Key) IsZero() bool { return k == Key{} }

// String returns the key in hexadecimal, empty for the empty history.
func (k Key) String() string {
	if k.IsZero() {
		return ""
	}
	return hex.EncodeToString(k[:])
}

// MarshalText implements encoding.TextMarshaler.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Key) UnmarshalText(b []byte) error {
	*k = Key{}
	if len(b) == 0 {
		return nil
	}
	if len(b) != hex.EncodedLen(len(k)) {
		return fmt.Errorf("reading history key: %d characters, want %d", len(b), hex.EncodedLen(len(k)))
	}
	if _, err := hex.Decode(k[:], b); err != nil {
		return fmt.Errorf("reading history key: %w", err)
	}
	return nil
}
