package lineage

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"sync"

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
	n := namers.Get().(*namer)
	defer namers.Put(n)
	for _, m := range messages {
		n.names(m, func(name []byte) { k.IDs = n.next(k.IDs, name) })
		n.aloud(m, func(said []byte) { k.Contents = n.next(k.Contents, said) })
	}
	return k
}

// namesOf returns the names by which a message counts in a history: its id or, if the client gave it none, what it says. An activity has
// none, as clients do not send it, nor has a message that the fold named itself (compact.MadeByThinking), as clients have other ids for it.
func namesOf(m agui.Message) []string { return collect(m, newNamer().names) }

// saidAloud returns what a message says if all clients send it: a client may leave out reasoning, and add its own instructions.
func saidAloud(m agui.Message) []string { return collect(m, newNamer().aloud) }

// said returns role and content of a message in a form that does not depend on how a client writes it: as a string or as parts, with the
// calls of one turn in one message or in several, with arguments written anew.
func said(m agui.Message) []string { return collect(m, newNamer().said) }

// saidMark begins all strings of said, so that no id equals one, as an id is UTF-8.
const saidMark = 0xff

func collect(m agui.Message, names func(agui.Message, func([]byte))) (all []string) {
	names(m, func(name []byte) { all = append(all, string(name)) })
	return all
}

// namer makes the names of messages one after another in one buffer, as they may be as large as the messages, and hashes them.
type namer struct {
	name []byte
	hash hash.Hash
	head [len(Key{}) + 4]byte
	sum  [sha256.Size]byte
}

// namers are those of Extend: the buffer of each is as large as the largest message that it has named.
var namers = sync.Pool{New: func() any { return newNamer() }}

func newNamer() *namer { return &namer{hash: sha256.New()} }

// names yields namesOf, each valid until the next.
func (n *namer) names(m agui.Message, yield func(name []byte)) {
	switch {
	case isActivity(m), compact.MadeByThinking(m):
	case agui.Unnamed(m.ID):
		n.said(m, yield)
	default:
		n.name = append(n.name[:0], m.ID...)
		yield(n.name)
	}
}

// aloud yields saidAloud.
func (n *namer) aloud(m agui.Message, yield func(said []byte)) {
	switch m.Role {
	case agui.RoleActivity, agui.RoleReasoning, agui.RoleSystem, agui.RoleDeveloper:
	default:
		n.said(m, yield)
	}
}

// said yields what the function said returns.
func (n *namer) said(m agui.Message, yield func(said []byte)) {
	begin := func(kind string) []byte { return append(append(append(n.name[:0], saidMark), kind...), 0) }
	switch m.Role {
	case agui.RoleAssistant:
		front := begin(m.Role)
		if n.name = appendContent(front, m); len(n.name) > len(front) {
			yield(n.name)
		}
		for call := range agui.Elements(m.Get("toolCalls")) {
			n.name = appendString(begin("call"), agui.Lookup(call, "id"))
			yield(n.name)
		}
	case agui.RoleTool:
		n.name = appendContent(append(appendString(begin(m.Role), m.Get("toolCallId")), 0), m)
		yield(n.name)
	default:
		n.name = appendContent(begin(m.Role), m)
		yield(n.name)
	}
}

func appendContent(dst []byte, m agui.Message) []byte {
	content := m.Get("content")
	if !agui.IsArray(content) {
		return appendString(dst, content)
	}
	for part := range agui.Elements(content) {
		if stringOf(agui.Lookup(part, "type")) == "text" {
			dst = appendString(dst, agui.Lookup(part, "text"))
			continue
		}
		b := bytes.NewBuffer(dst)
		_ = json.Compact(b, part) // checked when it was decoded
		dst = b.Bytes()
	}
	return dst
}

// appendString appends the value of a JSON string, and nothing of any other JSON.
func appendString(dst []byte, v json.RawMessage) []byte {
	if !agui.IsString(v) {
		return dst
	}
	return agui.TextOf(v).AppendString(dst)
}

// stringOf returns the value of a JSON string, empty for any other JSON.
func stringOf(v json.RawMessage) string {
	if !agui.IsString(v) {
		return ""
	}
	return agui.TextOf(v).String()
}

// next appends one name. It uses SHA-256, so that nobody can choose names that give another history's key.
func (n *namer) next(k Key, name []byte) Key {
	copy(n.head[:], k[:])
	binary.BigEndian.PutUint32(n.head[len(k):], uint32(len(name)))
	n.hash.Reset()
	n.hash.Write(n.head[:])
	n.hash.Write(name)
	return Key(n.hash.Sum(n.sum[:0])[:len(k)])
}

// interruptKey returns the key by which a run with an interrupt of this id is found.
func interruptKey(id string) Key {
	n := newNamer()
	k := n.next(n.next(Key{}, []byte("interrupt")), []byte(id))
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
