package timeline

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
)

// Finder finds the steps whose record has a text, in upper or lower case. A text that several deltas of a message or a tool call make
// together is found in the last of them.
type Finder struct {
	want string
	// ends holds the end of each text that deltas make, by type and id. It is too short to have the whole text.
	ends map[string]string
	// ids holds the last id of each type of chunk and subagent: a chunk without an id continues that message or tool call.
	ids map[string]string
}

// NewFinder returns a Finder of a text that is not empty.
func NewFinder(text string) *Finder {
	return &Finder{want: strings.ToLower(text), ends: map[string]string{}, ids: map[string]string{}}
}

// Next reports whether the record of the next step has the text: in its raw bytes, or in one of its strings after unescaping.
func (f *Finder) Next(value []byte) bool {
	found := f.in(string(value))
	if bytes.Contains(value, []byte(`"delta"`)) {
		var e struct {
			Type, MessageID, ToolCallID, SubagentRunID string
			Delta                                      json.RawMessage
		}
		_ = json.Unmarshal(value, &e) // a field of another type has no text that grows
		if agui.IsString(e.Delta) {
			chunks := e.Type + "\x00" + e.SubagentRunID
			id := e.MessageID + "\x00" + e.ToolCallID
			if id == "\x00" {
				id = f.ids[chunks]
			}
			f.ids[chunks] = id
			id = e.Type + "\x00" + id
			text := f.ends[id] + strings.ToLower(agui.TextOf(e.Delta).String())
			f.ends[id] = strings.Clone(text[max(0, len(text)-len(f.want)+1):])
			return found || strings.Contains(text, f.want)
		}
	}
	if found || !bytes.ContainsRune(value, '\\') {
		return found
	}
	d := json.NewDecoder(bytes.NewReader(value))
	for {
		token, err := d.Token()
		if text, ok := token.(string); err != nil || ok && f.in(text) {
			return err == nil
		}
	}
}

func (f *Finder) in(text string) bool { return strings.Contains(strings.ToLower(text), f.want) }
