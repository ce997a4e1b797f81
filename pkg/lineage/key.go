package lineage

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
)

// Key is a hash by which runs are found: the hash of the names of a history's messages, in order, or of an interrupt's id. It is a chain of
// hashes, so one pass over a history gives the keys of all its prefixes. The zero Key is the empty history's.
type Key [16]byte

// HistoryKey identifies a history by the messages that a client would send as input. The zero HistoryKey is the empty history's.
type HistoryKey struct {
	// IDs is the key of the messages' names (namesOf), Contents of what they say (saidAloud).
	IDs, Contents Key
}

// KeyOf returns the key of a history.
func KeyOf(messages []agui.Message) HistoryKey { return HistoryKey{}.Extend(messages) }

// Extend returns the key of the history that results from appending messages to the one that k identifies. Its cost
// depends on these messages alone.
func (k HistoryKey) Extend(messages []agui.Message) HistoryKey {
	var buf []byte
	for _, m := range messages {
		for _, name := range namesOf(m) {
			k.IDs, buf = k.IDs.next(name, buf)
		}
		for _, said := range saidAloud(m) {
			k.Contents, buf = k.Contents.next(said, buf)
		}
	}
	return k
}

// namesOf returns the names by which a message counts in a history: its id or, if the client gave it none, what it says. An activity has
// none, as clients do not send it, nor has a message that the fold named itself (compact.MadeByThinking), as clients have other ids for it.
func namesOf(m agui.Message) []string {
	switch {
	case isActivity(m), compact.MadeByThinking(m):
		return nil
	case agui.Unnamed(m.ID):
		return said(m)
	default:
		return []string{m.ID}
	}
}

// saidAloud returns what a message says if all clients send it: a client may leave out reasoning, and add its own instructions.
func saidAloud(m agui.Message) []string {
	switch m.Role {
	case agui.RoleActivity, agui.RoleReasoning, agui.RoleSystem, agui.RoleDeveloper:
		return nil
	default:
		return said(m)
	}
}

// said returns role and content of a message in a form that does not depend on how a client writes it: as a string or as parts, with the
// calls of one turn in one message or in several, with arguments written anew. No id equals one of these strings, as an id is UTF-8.
func said(m agui.Message) (all []string) {
	add := func(kind string, v ...string) { all = append(all, "\xff"+kind+"\x00"+strings.Join(v, "\x00")) }
	switch text := contentOf(m); m.Role {
	case agui.RoleAssistant:
		if text != "" {
			add(m.Role, text)
		}
		for call := range agui.Elements(m.Get("toolCalls")) {
			add("call", stringOf(agui.Lookup(call, "id")))
		}
	case agui.RoleTool:
		add(m.Role, stringOf(m.Get("toolCallId")), text)
	default:
		add(m.Role, text)
	}
	return all
}

func contentOf(m agui.Message) string {
	content := m.Get("content")
	if !agui.IsArray(content) {
		return stringOf(content)
	}
	var b bytes.Buffer
	for part := range agui.Elements(content) {
		if stringOf(agui.Lookup(part, "type")) == "text" {
			b.WriteString(stringOf(agui.Lookup(part, "text")))
		} else {
			_ = json.Compact(&b, part) // checked when it was decoded
		}
	}
	return b.String()
}

// stringOf returns the value of a JSON string, empty for any other JSON.
func stringOf(v json.RawMessage) string {
	if !agui.IsString(v) {
		return ""
	}
	return agui.TextOf(v).String()
}

// next appends one name. It uses SHA-256, so that nobody can choose names that give another history's key. buf is reused
// between calls.
func (k Key) next(name string, buf []byte) (Key, []byte) {
	buf = append(buf[:0], k[:]...)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(name)))
	buf = append(buf, name...)
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

// Keys returns the keys by which an ended run is found as the parent of others: those of its history, and those of its interrupts.
func (r *Run) Keys() []Key {
	keys := make([]Key, 0, 2+len(r.Interrupts))
	for _, k := range []Key{r.HistoryKey.IDs, r.HistoryKey.Contents} {
		if k != (Key{}) {
			keys = append(keys, k)
		}
	}
	for _, id := range r.Interrupts {
		keys = append(keys, interruptKey(id))
	}
	return keys
}

// IsZero reports whether k is the key of the empty history.
func (k HistoryKey) IsZero() bool { return k == HistoryKey{} }

// String returns both keys in hexadecimal, empty for the empty history.
func (k HistoryKey) String() string {
	if k.IsZero() {
		return ""
	}
	return hex.EncodeToString(append(k.IDs[:], k.Contents[:]...))
}

// MarshalText implements encoding.TextMarshaler.
func (k HistoryKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *HistoryKey) UnmarshalText(b []byte) error {
	*k = HistoryKey{}
	if len(b) == 0 {
		return nil
	}
	both := make([]byte, 2*len(k.IDs))
	if len(b) != hex.EncodedLen(len(both)) {
		return fmt.Errorf("reading history key: %d characters, want %d", len(b), hex.EncodedLen(len(both)))
	}
	if _, err := hex.Decode(both, b); err != nil {
		return fmt.Errorf("reading history key: %w", err)
	}
	k.IDs, k.Contents = Key(both[:len(k.IDs)]), Key(both[len(k.IDs):])
	return nil
}
