package store

import (
	"encoding/json"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// headMembers are the members of a run record that its head contains. Reader.Lineage returns them.
var headMembers = map[string]bool{
	"clientRunId": true, "parentRunId": true, "parentBy": true, "spawnedBy": true, "spawned": true, "branchId": true,
	"rootRunId": true, "depth": true,
	"status": true, "agent": true, "inputForm": true, "rewrote": true, "base": true, "messageCount": true, "synthetic": true,
	"startedAt": true, "endedAt": true, "raw": true, "truncated": true, "rawLost": true,
}

// headFacts are the members of a head that are not in the record.
type headFacts struct {
	Facts    Facts   `json:"facts,omitzero"`
	Counts   *Counts `json:"counts,omitempty"` // of a run with contents
	Duration *int64  `json:"durationMs,omitempty"`
	HasInput bool    `json:"hasInput,omitempty"`
}

// EncodeRow encodes a run record, without its ids, contents and open fold, as two JSON objects. head has the members in
// headMembers and the facts, rest the other members. The head is one text, not columns, because reading many narrow columns is
// slower: for five million runs in twelve parts, 35 columns took four times as long as whole records (docs/bench/analytics.md).
func EncodeRow(r *record.Run, facts Facts) (head, rest []byte, err error) {
	more := headFacts{Facts: facts, Duration: r.Stats.Duration, HasInput: r.Input != nil}
	if r.Status != record.StatusRunning {
		more.Counts = &Counts{Messages: len(r.Messages), InputMessages: len(r.InputMessages)}
	}
	narrow := *r
	narrow.Messages, narrow.InputMessages, narrow.State, narrow.Open = nil, nil, nil, nil
	text, err := record.EncodeRun(&narrow)
	if err != nil {
		return nil, nil, err
	}
	if head, err = json.Marshal(more); err != nil {
		return nil, nil, fmt.Errorf("encoding facts: %w", err)
	}
	head, rest = head[:len(head)-1], []byte{'{'}
	for name, value := range agui.Members(text) {
		switch {
		case name == "tenant" || name == "threadId" || name == "runId": // the row has them
		case headMembers[name]:
			head = appendMember(head, name, value)
		default:
			rest = appendMember(rest, name, value)
		}
	}
	return append(head, '}'), append(rest, '}'), nil
}

func appendMember(object []byte, name string, value json.RawMessage) []byte {
	if len(object) > 1 {
		object = append(object, ',')
	}
	return append(append(agui.AppendString(object, name), ':'), value...)
}

// DecodeHead decodes the head of a row, without ids and version, which have columns.
func DecodeHead(head []byte) (Run, error) {
	var h struct {
		record.Run
		headFacts
	}
	if err := json.Unmarshal(head, &h); err != nil {
		return Run{}, fmt.Errorf("decoding head: %w", err)
	}
	h.Stats.Duration = h.Duration
	if h.HasInput {
		h.Input = json.RawMessage("{}")
	}
	return Run{Run: h.Run, Facts: h.Facts, Counts: h.Counts}, nil
}

// DecodeRow decodes both texts of a row, with the ids from its columns.
func DecodeRow(tenant, thread, run string, head, rest []byte) (*record.Run, error) {
	text := []byte{'{'}
	for _, id := range [][2]string{{"tenant", tenant}, {"threadId", thread}, {"runId", run}} {
		text = appendMember(text, id[0], agui.AppendString(nil, id[1]))
	}
	for _, part := range [][]byte{head, rest} {
		if len(part) > len("{}") {
			text = append(append(text, ','), part[1:len(part)-1]...)
		}
	}
	r, err := record.DecodeRun(append(text, '}'))
	if err != nil {
		return nil, fmt.Errorf("decoding row: %w", err)
	}
	return r, nil
}
