package fold

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Origin holds what a recorded run is folded from: parent history, base and input.
type Origin struct {
	// Parent is the history that the run starts from. Base is the history that its record is encoded relative to. Each is
	// empty if there is none.
	Parent, Base lineage.History
	// BaseKey is the key of Base, or nil if unknown. With a key, Record does not read Base again if the run only appends
	// to it.
	BaseKey *lineage.HistoryKey
	// Input is the run's input in the form of records. Restart sets it.
	Input *agui.RunAgentInput
}

// Restart is Start for a run that has a record. It uses the record's lineage, anomalies of the parent resolution and
// families of kept events.
func Restart(rec *record.Run, from *Origin, input *agui.RunAgentInput) *compact.Run {
	var started *compact.Run
	started, from.Input = Start(rec.RunID, lineage.ParentBy(rec.ParentBy), from.Parent, input, rec.Kept)
	for _, rule := range []string{lineage.AnomalySelfParent, lineage.AnomalyParentCycle, lineage.AnomalyPlacedAlone} {
		if rec.Stats.Anomalies[rule] > 0 { // each occurs at most once
			started.Note(rule)
		}
	}
	return started
}

// StartedAlone reports whether a run began without the history of its parent.
func StartedAlone(rec *record.Run) bool {
	return rec.Base == "" && rec.Stats.Anomalies[lineage.AnomalyPlacedAlone] > 0
}

// StartsBeside reports whether the parent was open when the run started. No record has the parent's history at that
// point.
func StartsBeside(rec, parent *record.Run) bool {
	return rec.Base == "" && !StartedAlone(rec) && (parent.Raw.Next > rec.Raw.First || parent.Status == record.StatusRunning)
}

// Record returns the run record that r's raw records produce, and the history at the run's end. The argument old is the
// existing record, which provides the lineage and the late error, and from is the Origin that was passed to Restart. The arguments first
// and next are the offset of the run's first raw record and the offset after its last.
func (r *Run) Record(old *record.Run, from Origin, first, next int64) (*record.Run, lineage.History) {
	made := &record.Run{
		Tenant: old.Tenant, ThreadID: old.ThreadID, RunID: old.RunID, ClientRunID: old.ClientRunID,
		Lineage: old.Lineage, Base: old.Base, Kept: old.Kept,
		SinceSnapshot: old.SinceSnapshot, FoldVersion: old.FoldVersion,
		RawLost: old.RawLost, Truncated: old.Truncated, Cut: old.Cut, Closed: old.Closed,
		Agent: r.Producer.Agent, Labels: r.Producer.Labels, Traceparent: r.Producer.Traceparent,
		Synthetic: r.Synthetic, FirstMalformed: r.FirstMalformed,
	}
	var at lineage.History
	if r.Fold != nil {
		FillInput(made, from.Parent, from.Base, from.Input, r.InputSHA256)
		Fill(made, r.Fold, r.Tally, from.Base)
		var key lineage.HistoryKey
		at, key = r.end(made, from)
		made.HistoryKey = key.String()
	} else {
		made.InputSHA256 = r.InputSHA256
	}
	made.Raw = record.Raw{
		Partition: old.Raw.Partition, First: first, Next: next, Ranges: old.Raw.Ranges,
		Events: r.Tally.Events, SHA256: r.Tally.SHA256(), NextSeq: r.Seq.Next,
	}
	if old.Status == record.StatusAbandoned && made.Status == record.StatusRunning {
		made.Status, made.Synthetic, made.Terminal, made.EndedAt = old.Status, true, old.Terminal, old.EndedAt
	}
	if old.LateError != nil {
		made.FailLate(*old.LateError)
	}
	return made, at
}

// end returns the history at the run's end and its key.
func (r *Run) end(made *record.Run, from Origin) (lineage.History, lineage.HistoryKey) {
	adds := from.BaseKey != nil && made.Layout == nil && len(from.Base.Messages)+len(made.Messages) == made.MessageCount
	if _, only := from.Base.Added(r.Fold); only && adds {
		at, err := lineage.RestoreFrom(from.Base, lineage.Content{Messages: made.Messages, State: made.State})
		if err == nil {
			return at, from.BaseKey.Extend(made.Messages)
		}
	}
	at := At(r.Fold, from.Base)
	if adds { // truncated messages of the base are in its key as they were
		return at, from.BaseKey.Extend(made.Messages)
	}
	return at, lineage.KeyOf(at.Messages)
}

// PendingInput returns the complete input of a pending run from its record; nil if it has none.
func PendingInput(rec *record.Run) (*agui.RunAgentInput, error) {
	if rec.Input == nil {
		return nil, nil
	}
	in, err := agui.DecodeInput(withMessages(rec.Input, rec.InputMessages), rec.RunID)
	if err != nil {
		return nil, fmt.Errorf("reading input of a record: %w", err)
	}
	return in, nil
}

// withMessages returns an input with its messages. Records store the two separately.
func withMessages(input json.RawMessage, messages []agui.Message) json.RawMessage {
	out := []byte(`{"messages":[`)
	for i, m := range messages {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, m.Raw...)
	}
	out = append(out, ']')
	rest := bytes.TrimSpace(bytes.TrimSpace(input)[1:])
	if rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...)
}
