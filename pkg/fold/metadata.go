package fold

import (
	"fmt"
	"time"

	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Metadata is what deciding about later records needs of a run, without its contents.
//
// Its Start is the offset of the run's first record, be it an input or an event, and its End that of its last one once it has ended.
// A run is sealed once its record has nothing to go on from: a terminal event ended it, or it was expired and then closed, or is too
// large. Its record does not change after that.
type Metadata struct {
	lineage.Run
	// Next is the offset after the run's last record.
	Next    int64 `json:"next"`
	NextSeq int64 `json:"nextSeq"`
	// SinceSnapshot is as in the record.
	SinceSnapshot int64 `json:"sinceSnapshot,omitempty"`
	// LastAt is when the run's latest record came, in stream time; only while it is not sealed.
	LastAt time.Time `json:"lastAt,omitzero"`
	// Pending: an input has come, but no event yet, so the parent resolution is preliminary unless the run is Placed.
	Pending bool `json:"pending,omitempty"`
	// Placed: the parent resolution is final, as record.Open has it.
	Placed bool `json:"placed,omitempty"`
}

// NewMetadata returns that of a run that begins at an offset, and is pending. clientRunID is empty if it is the run's id.
func NewMetadata(id, clientRunID string, start int64) Metadata {
	run := lineage.Run{ID: id, ClientID: clientRunID, Start: start, End: -1, Status: lineage.StatusRunning}
	return Metadata{Run: run, NextSeq: -1, Pending: true}
}

// MetadataOf takes the metadata out of a record.
func MetadataOf(r *record.Run) (*Metadata, error) {
	m := &Metadata{Run: LineageOf(r), Next: r.Raw.Next, NextSeq: r.Raw.NextSeq, SinceSnapshot: r.SinceSnapshot}
	m.Sealed = r.Open == nil
	if r.Open != nil {
		m.LastAt, m.Pending, m.Placed = r.Open.LastAt, r.Open.Pending, r.Open.Placed
	}
	if err := m.HistoryKey.UnmarshalText([]byte(r.HistoryKey)); err != nil {
		return nil, fmt.Errorf("reading metadata of run: %w", err)
	}
	return m, nil
}

// Meta implements Member.
func (m *Metadata) Meta() *Metadata { return m }

// Resolved reports whether the run's parent is resolved for good.
func (m *Metadata) Resolved() bool { return !m.Pending || m.Placed }

// Decide takes in the parent resolution of the run's first event. rawLost: events before it may be gone.
func (m *Metadata) Decide(resolved lineage.Run, rawLost bool) {
	start := m.Start // of its first record, which may be the input
	m.Run = resolved
	m.Start, m.Pending, m.Placed, m.RawLost = start, false, false, rawLost
}

// IsExpired reports whether the run is expired: abandoned, and not sealed.
func (m *Metadata) IsExpired() bool { return !m.Sealed && !m.Open() }

// Expire ends the run at its last record for as long as no other comes.
func (m *Metadata) Expire() {
	m.Status, m.Synthetic, m.End = lineage.StatusAbandoned, true, m.Next-1
}

// Reactivate opens an expired run again.
func (m *Metadata) Reactivate() { m.Status, m.Synthetic, m.End = lineage.StatusRunning, false, -1 }

// Seal ends the run for good at its last record, synthetic where Skein ended it.
func (m *Metadata) Seal(status lineage.Status, synthetic bool) {
	m.Status, m.Sealed, m.Synthetic, m.End = status, true, synthetic, m.Next-1
}
