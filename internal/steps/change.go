package steps

import (
	"encoding/json"
	"fmt"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/timeline"
)

// after returns the history that a change makes of h. It does not modify h.
func after(h lineage.History, c timeline.Change) (lineage.History, error) {
	if len(c.Messages) > 0 {
		h.Messages = slices.Clone(h.Messages)
	}
	for _, m := range c.Messages {
		if m.Index < 0 || m.Index > len(h.Messages) || m.Index == len(h.Messages) && m.Op != timeline.Add {
			return h, fmt.Errorf("changing message %d of %d", m.Index, len(h.Messages))
		}
		switch m.Op {
		case timeline.Add:
			h.Messages = slices.Insert(h.Messages, m.Index, m.Message)
		case timeline.Replace:
			h.Messages[m.Index] = m.Message
		case timeline.Remove:
			h.Messages = slices.Delete(h.Messages, m.Index, m.Index+1)
		case timeline.Append:
			grown, err := appended(h.Messages[m.Index], m)
			if err != nil {
				return h, fmt.Errorf("changing message %d: %w", m.Index, err)
			}
			h.Messages[m.Index] = grown
		default:
			return h, fmt.Errorf("changing message %d: %q is no way to change one", m.Index, m.Op)
		}
	}
	var err error
	if len(c.State) > len("[]") {
		if h.State, err = patched(h.State, c.State); err != nil {
			return h, fmt.Errorf("changing the state: %w", err)
		}
	}
	return h, nil
}

// appended returns a message with the text of a change appended to one of its strings.
func appended(m agui.Message, c timeline.MessageChange) (agui.Message, error) {
	place, err := timeline.StatePlace(c.Path)
	if err != nil {
		return m, err
	}
	was := place.Of(lineage.History{State: m.Raw})
	if !agui.IsString(was) || !agui.IsString(c.Text) {
		return m, fmt.Errorf("there is no string at %s", c.Path)
	}
	is := slices.Concat(was[:len(was)-1], c.Text[1:])
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": c.Path, "value": is}})
	if err != nil {
		return m, err
	}
	m.Raw, err = patched(m.Raw, patch)
	return m, err
}

// patched applies a JSON Patch (RFC 6902) to a document.
func patched(document, patch json.RawMessage) (json.RawMessage, error) {
	var ops []struct {
		Op, Path string
		Value    json.RawMessage
	}
	if err := json.Unmarshal(patch, &ops); err != nil {
		return nil, err
	}
	if len(ops) == 1 && ops[0].Op == "replace" && ops[0].Path == "" { // the library patches objects and lists only
		return ops[0].Value, nil
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	o := jsonpatch.NewApplyOptions()
	o.EscapeHTML = false // keep <, > and & as they are
	return p.ApplyWithOptions(document, o)
}
