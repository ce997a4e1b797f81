package lineage

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
)

// Key names a history by the ids of its messages in order: what the official client would send as an input's messages.
// Activity messages are left out, which clients do not send, and messages that the fold has named itself
// (compact.MadeByThinking), which clients have under ids of their own. Two histories of one key have the same ids.
//
// A key is a chain of hashes, so that the keys of all prefixes of a history come out of one pass
// over it. The zero Key is the empty history.
type Key [16]byte

// KeyOf returns the key of a history.
func KeyOf(messages []agui.Message) Key { return Key{}.Extend(messages) }

// Extend returns the key of the history that k names with messages appended. A caller that knows
// that a run only appended to its base pays for what was appended.
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

// next appends one id. SHA-256, so that no choice of ids gives another history's key; buf is
// reused between calls.
func (k Key) next(id string, buf []byte) (Key, []byte) {
	buf = append(buf[:0], k[:]...)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(id)))
	buf = append(buf, id...)
	sum := sha256.Sum256(buf)
	return Key(sum[:len(k)]), buf
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
