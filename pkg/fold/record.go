package fold

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Begin is Start for a run that has a record: what was found in placing the run is taken from the
// record, as are its place and the families of events that it keeps.
func Begin(given *record.Run, parent lineage.History, input *agui.RunAgentInput) (*compact.Run, *agui.RunAgentInput) {
	fold, input := Start(given.RunID, lineage.ParentBy(given.ParentBy), parent, input, given.Kept)
	for _, rule := range []string{lineage.AnomalySelfParent, lineage.AnomalyParentCycle, lineage.AnomalyPlacedAlone} {
		if given.Stats.Anomalies[rule] > 0 { // each is found once
			fold.Note(rule)
		}
	}
	return fold, input
}

// BeganAlone reports whether a run began without what its parent had said by then.
func BeganAlone(rec *record.Run) bool {
	return rec.Base == "" && rec.Stats.Anomalies[lineage.AnomalyPlacedAlone] > 0
}

// Record is the run record that the run's raw records make, where the given one is right about the
// run's place, and the history at its end. Parent is what Begin was given, base the history of the run's
// base, input as Begin has returned it, first and next the offset of the run's first raw record and the one after its last.
func (r *Run) Record(given *record.Run, parent, base lineage.History, input *agui.RunAgentInput, first, next int64) (*record.Run, lineage.History) {
	made := &record.Run{
		Tenant: given.Tenant, ThreadID: given.ThreadID, RunID: given.RunID, GivenRunID: given.GivenRunID,
		Lineage: given.Lineage, Base: given.Base, Kept: given.Kept,
		SinceSnapshot: given.SinceSnapshot, FoldVersion: given.FoldVersion, Refolds: given.Refolds, BaseRefolds: given.BaseRefolds,
		RawLost: given.RawLost, Truncated: given.Truncated, Closed: given.Closed,
		Agent: r.Producer.Agent, Labels: r.Producer.Labels, Synthetic: r.Synthetic,
	}
	var at lineage.History
	if r.Fold != nil {
		FillInput(made, parent, base, input, r.InputSHA256)
		Fill(made, r.Fold, r.Tally, base)
		var key lineage.Key
		at, key = r.end(made, base)
		made.HistoryKey = key.String()
	} else {
		made.InputSHA256 = r.InputSHA256
	}
	made.Raw = record.Raw{
		Partition: given.Raw.Partition, First: first, Next: next, Ranges: given.Raw.Ranges,
		Events: r.Tally.Events, SHA256: r.Tally.SHA256(), NextSeq: r.Seq.Next,
	}
	if given.Status == record.StatusAbandoned && made.Status == record.StatusRunning {
		made.Status, made.Synthetic, made.Terminal, made.EndedAt = given.Status, true, given.Terminal, given.EndedAt
	}
	return made, at
}

// asCounted returns a record that was made with its anomalies told as those of the given one are. Records of version 1 count numbers that
// are new as repeats: wholly, or up to where they were written when that was mended.
func asCounted(given, made *record.Run) *record.Run {
	was, is := given.Stats.Anomalies, made.Stats.Anomalies
	undecided := is[AnomalyBackwards] - was[AnomalyBackwards]
	if given.FoldVersion > 1 || undecided <= 0 || is[AnomalyRepeat]+undecided != was[AnomalyRepeat] {
		return made
	}
	told := *made
	told.Stats.Anomalies = maps.Clone(is)
	told.Stats.Anomalies[AnomalyRepeat] = was[AnomalyRepeat]
	if told.Stats.Anomalies[AnomalyBackwards] = was[AnomalyBackwards]; was[AnomalyBackwards] == 0 {
		delete(told.Stats.Anomalies, AnomalyBackwards)
	}
	return &told
}

// end returns the history at the run's end, and its key.
func (r *Run) end(made *record.Run, base lineage.History) (lineage.History, lineage.Key) {
	if _, only := base.Added(r.Fold); only && r.BaseKey != nil {
		at, err := lineage.RestoreFrom(base, lineage.Content{Messages: made.Messages, State: made.State})
		if err == nil {
			return at, r.BaseKey.Extend(made.Messages)
		}
	}
	at := At(r.Fold, base)
	return at, lineage.KeyOf(at.Messages)
}

// Difference is a member in which two records of a run differ.
type Difference struct {
	// Member is its name; statistics and the log's are named one by one, as in "stats.messages".
	Member string `json:"member"`
	// At leads to the first value within it that differs, as a JSON Pointer (RFC 6901); empty where
	// all of it does.
	At agui.String `json:"at,omitempty"`
}

// Differences tells a record of a run and the one that its raw records make (Run.Record) apart, by name. What an open run goes on from is
// left out, and what rules of the given one's version could not tell apart is no difference.
func Differences(given, made *record.Run) ([]Difference, error) {
	textA, err := encodeClosed(given)
	if err != nil {
		return nil, err
	}
	textB, err := encodeClosed(asCounted(given, made))
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

// encodeClosed encodes a record without what an open run goes on from.
func encodeClosed(r *record.Run) ([]byte, error) {
	closed := *r
	closed.Open = nil
	text, err := record.EncodeRun(&closed)
	if err != nil {
		return nil, fmt.Errorf("comparing records: %w", err)
	}
	return text, nil
}

// members are the parts of an encoded record that are compared.
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

// pointer leads to the first place in which two JSON texts differ: lists in their order, objects by
// name. Where one of the two has nothing there, it leads to what the other one has.
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
			return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(first) + pointer(x[first], y[first])
		}
	}
	return ""
}
