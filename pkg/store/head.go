package store

import (
	"encoding/json"
	"fmt"

	"github.com/skeinhq/skein/pkg/record"
)

// HeadOf returns the part of a record that Reader.Lineage gives.
func HeadOf(r *record.Run) record.Run {
	out := record.Run{
		Tenant: r.Tenant, ThreadID: r.ThreadID, RunID: r.RunID, ClientRunID: r.ClientRunID, Lineage: r.Lineage, Base: r.Base,
		Status: r.Status, Agent: r.Agent, Rewrote: r.Rewrote, MessageCount: r.MessageCount, InputForm: r.InputForm,
		StartedAt: r.StartedAt, EndedAt: r.EndedAt, Synthetic: r.Synthetic, Truncated: r.Truncated, RawLost: r.RawLost,
		Raw: record.Raw{Partition: r.Raw.Partition, First: r.Raw.First, Next: r.Raw.Next, Events: r.Raw.Events, Ranges: r.Raw.Ranges},
	}
	out.Stats.Duration = r.Stats.Duration
	if r.Input != nil {
		out.Input = json.RawMessage("{}")
	}
	return out
}

// EncodeHead returns the head of a whole record, whose facts are those of FactsOf: {"run": a run record of HeadOf without its ids, "facts": …,
// "counts": …}, the last of them where the run has contents. It is one
// text, as a read of many narrow columns costs more than it saves: over five million runs in twelve parts, 35 columns took four times as
// long as whole records (docs/bench/analytics.md).
func EncodeHead(r *record.Run, facts Facts) ([]byte, error) {
	h := HeadOf(r)
	h.Tenant, h.ThreadID, h.RunID = "", "", "" // the row has them
	text, err := record.EncodeRun(&h)
	if err != nil {
		return nil, fmt.Errorf("encoding head: %w", err)
	}
	out := fmt.Appendf(nil, `{"run":%s`, text) // a Marshal of all would read the record once more
	if facts != (Facts{}) {
		known, err := json.Marshal(facts)
		if err != nil {
			return nil, fmt.Errorf("encoding head: %w", err)
		}
		out = fmt.Appendf(out, `,"facts":%s`, known)
	}
	if r.Status != record.StatusRunning {
		out = fmt.Appendf(out, `,"counts":{"messages":%d,"inputMessages":%d}`, len(r.Messages), len(r.InputMessages))
	}
	return append(out, '}'), nil
}

// DecodeHead reads what EncodeHead has written; ids and version come from the row.
func DecodeHead(text []byte) (Run, error) {
	if r, ok := readHead(text); ok {
		return r, nil
	}
	return decodeHead(text)
}

// decodeHead reads a head of any form, such as of another version.
func decodeHead(text []byte) (Run, error) {
	var h struct {
		Run    record.Run `json:"run"`
		Facts  Facts      `json:"facts"`
		Counts *Counts    `json:"counts"`
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return Run{}, fmt.Errorf("decoding head: %w", err)
	}
	return Run{Run: h.Run, Facts: h.Facts, Counts: h.Counts}, nil
}
