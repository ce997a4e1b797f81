package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

// Difference is a member that differs between two records of a run.
type Difference struct {
	// Member is the member's name. Members of stats and raw are named one by one, such as "stats.messages".
	Member string `json:"member"`
	// At is a JSON Pointer (RFC 6901) to the first differing value inside the member; empty if the whole member differs.
	At agui.String `json:"at,omitempty"`
}

// Differences returns the members in which the record given differs from made, the record that its raw records produce
// (fold.Run.Record), sorted by name. It ignores the checkpoint of an open run, and times of tool calls if given has
// none.
func Differences(given, made *record.Run) ([]Difference, error) {
	textA, err := encodeClosed(given)
	if err != nil {
		return nil, err
	}
	textB, err := encodeClosed(asTimed(given, made))
	if err != nil || bytes.Equal(textA, textB) {
		return nil, err
	}
	x, err := members(textA)
	if err != nil {
		return nil, err
	}
	y, err := members(textB)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(x))
	for name := range x {
		names = append(names, name)
	}
	for name := range y {
		if _, ok := x[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out []Difference
	for _, name := range names {
		if !bytes.Equal(x[name], y[name]) {
			out = append(out, Difference{Member: name, At: agui.String(pointer(x[name], y[name]))})
		}
	}
	return out, nil
}

// encodeClosed encodes a record without its checkpoint.
func encodeClosed(r *record.Run) ([]byte, error) {
	closed := *r
	closed.Open = nil
	text, err := record.EncodeRun(&closed)
	if err != nil {
		return nil, fmt.Errorf("comparing records: %w", err)
	}
	return text, nil
}

// members returns the parts of an encoded record that are compared, by name.
func members(text []byte) (map[string]json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("comparing records: %w", err)
	}
	for _, group := range []string{"raw", "stats"} {
		var parts map[string]json.RawMessage
		if err := json.Unmarshal(all[group], &parts); err != nil {
			return nil, fmt.Errorf("comparing records: %w", err)
		}
		for name, value := range parts {
			all[group+"."+name] = value
		}
		delete(all, group)
	}
	return all, nil
}

// pointer returns a JSON Pointer to the first value in which two JSON texts differ. It compares lists in order and
// objects by member name. If only one text has a value, the result points to that value.
func pointer(a, b json.RawMessage) string {
	if len(a) == 0 || len(b) == 0 || a[0] != b[0] {
		return ""
	}
	switch a[0] {
	case '[':
		var x, y []json.RawMessage
		if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
			return ""
		}
		for i := range max(len(x), len(y)) {
			if i >= len(x) || i >= len(y) {
				return "/" + strconv.Itoa(i)
			}
			if !bytes.Equal(x[i], y[i]) {
				return "/" + strconv.Itoa(i) + pointer(x[i], y[i])
			}
		}
	case '{':
		var x, y agui.StringMap[json.RawMessage]
		if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
			return ""
		}
		first, found := "", false
		for _, m := range []agui.StringMap[json.RawMessage]{x, y} {
			for name := range m {
				if !bytes.Equal(x[name], y[name]) && (!found || name < first) {
					first, found = name, true
				}
			}
		}
		if found {
			return "/" + agui.EscapePointer.Replace(first) + pointer(x[first], y[first])
		}
	}
	return ""
}

// asTimed returns made, without times of tool calls if given has none. The record limit may be why given lacks them.
func asTimed(given, made *record.Run) *record.Run {
	if given.Stats.ToolCallTimes != nil {
		return made
	}
	told := *made
	told.Stats.ToolCallTimes = nil
	return &told
}

// compared reports whether a member of a record can be compared with the result of the raw events. What identifies the
// events (isProof) always can. The rest cannot if the run has only an input, or another version of the fold made the record
// (byOthers). If the record is not whole, status and times remain and, unless contents were cut, messageCount and historyKey.
func compared(r *record.Run, byOthers bool, member string) bool {
	pending := r.InputOnly()
	switch {
	case !pending && r.Whole() && !byOthers, isProof(member):
		return true
	case (member == "messageCount" || member == "historyKey") && r.Cut != nil:
		return false
	case member == "messageCount", member == "historyKey", member == "status", member == "startedAt", member == "endedAt":
		return !pending && !byOthers
	default:
		return false
	}
}

// isProof reports whether a member identifies the run's raw events. All other members are results of the fold's rules.
func isProof(member string) bool { return strings.HasPrefix(member, "raw.") || member == "inputSha256" }

// unprovedPending is reported if the run's parent resolution is still preliminary.
const unprovedPending = "lineage: no event has come that would decide it"

// unprovedOf returns the parts of a record that the proof does not cover, apart from the parent resolution.
func unprovedOf(r *record.Run) []string {
	out := []string{}
	if r.Status == record.StatusAbandoned {
		out = append(out, "the end: Skein made it, as the agent had fallen silent; it is in no hash")
	}
	if r.Status == record.StatusRunning {
		out = append(out, "what came after the latest record: the run is open")
	}
	if r.InputOnly() {
		out = append(out, "the contents: the record has none yet")
	}
	if fold.StartedAlone(r) {
		out = append(out, UnprovedAlone)
	}
	switch {
	case r.Cut != nil:
		out = append(out, "contents: they were cut while the run went on, as open runs held too much memory; hashes and counts speak for them")
	case r.Truncated:
		out = append(out, "contents: those above the record limit were cut; hashes and counts speak for them")
	}
	if r.RawLost {
		out = append(out, "the events that were gone before they were folded")
	}
	if r.FoldVersion != compact.Version {
		out = append(out, fmt.Sprintf("contents: they were folded by version %d of the rules, this is %d", r.FoldVersion, compact.Version))
	}
	return out
}
