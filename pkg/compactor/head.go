package compactor

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// head is what routing and lineage need of a run at hand: a small part of its record. The local
// store keeps one beside each record, so that placing a run does not read whole conversations.
//
// Its Start is the offset of the run's first record, be it an input or an event, and its End that
// of its last one once it has ended.
type head struct {
	lineage.Run
	Next    int64 `json:"next"`
	NextSeq int64 `json:"nextSeq"`
	// SinceSnapshot is as in the record.
	SinceSnapshot int64 `json:"sinceSnapshot,omitempty"`
	// Refolds is as in the record.
	Refolds int `json:"refolds,omitempty"`
	// LastAt is when the run's latest record came, in stream time; only while it is not sealed.
	LastAt time.Time `json:"lastAt,omitzero"`
	// Pending: an input has come, but no event yet, and so nothing is decided for good.
	Pending bool `json:"pending,omitempty"`
	// Placed: but its place is decided for good, as record.Open has it.
	Placed bool `json:"placed,omitempty"`
	// recordedAt is the time of its record, where a partition opens.
	recordedAt time.Time
	// live is the run while it is in memory.
	live *run
}

// A run is sealed once its record says nothing of how to go on: a real terminal event ended it, or it
// was abandoned, and closed or too large for that. Then its record does not change any more.

// endedBefore reports whether the run's terminal event lies below the offset.
func (h *head) endedBefore(offset int64) bool { return h.Sealed && h.Next <= offset }

// end notes that the run has ended at its last record, synthetic where not by an event of the agent.
func (h *head) end(status lineage.Status, synthetic bool) {
	h.Status = status
	h.Sealed = record.Status(status).Sealed()
	h.Synthetic = synthetic
	h.End = h.Next - 1
}

// revive notes that a run goes on that was abandoned.
func (h *head) revive() {
	h.Status, h.Sealed, h.Synthetic, h.End = lineage.StatusRunning, false, false, -1
}

// headOf takes the head out of a record.
func headOf(r *record.Run) (*head, error) {
	h := &head{Run: fold.LineageOf(r), Next: r.Raw.Next, NextSeq: r.Raw.NextSeq, SinceSnapshot: r.SinceSnapshot, Refolds: r.Refolds}
	h.Sealed = r.Open == nil
	if r.Open != nil {
		h.LastAt, h.Pending, h.Placed = r.Open.LastAt, r.Open.Pending, r.Open.Placed
	}
	if err := h.HistoryKey.UnmarshalText([]byte(r.HistoryKey)); err != nil {
		return nil, fmt.Errorf("reading head of run: %w", err)
	}
	return h, nil
}

// headJSON is a head in the local store.
type headJSON struct {
	*head
	SpawnedBy agui.String `json:"spawnedBy,omitempty"`
}

func (h *head) encode() ([]byte, error) {
	b, err := json.Marshal(headJSON{h, agui.String(h.SpawnedBy)})
	if err != nil {
		return nil, fmt.Errorf("encoding head of run: %w", err)
	}
	return b, nil
}

func decodeHead(b []byte) (*head, error) {
	w := headJSON{head: new(head)}
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("decoding head of run: %w", err)
	}
	w.head.SpawnedBy = string(w.SpawnedBy)
	return w.head, nil
}
