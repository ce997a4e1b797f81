package fold

import (
	"fmt"
	"time"

	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Metadata is what later decisions need to know about a run, without its contents.
//
// Start is the offset of the run's first record, an input or an event. End is the offset of its last record, once the
// run has ended. A sealed run cannot continue: a terminal event ended it, it expired and was then closed, or it is too
// large. Nothing here but Status changes once a run is sealed (LateError).
type Metadata struct {
	lineage.Run
	// Next is the offset after the run's last record.
	Next    int64 `json:"next"`
	NextSeq int64 `json:"nextSeq"`
	// SinceSnapshot has the same meaning as in the record.
	SinceSnapshot int64 `json:"sinceSnapshot,omitempty"`
	// Traceparent has the same meaning as in the record. Nothing is decided by it.
	Traceparent string `json:"traceparent,omitempty"`
	// LastAt is the stream time of the run's latest record; set only while the run is not sealed.
	LastAt time.Time `json:"lastAt,omitzero"`
	// Pending means that an input arrived but no event yet. The parent resolution is then preliminary unless Placed is
	// set.
	Pending bool `json:"pending,omitempty"`
	// Placed means that the parent resolution is final, as in record.Open.
	Placed bool `json:"placed,omitempty"`
}

// NewMetadata returns the metadata of a pending run that begins at offset start. clientRunID is empty if it equals id.
func NewMetadata(id, clientRunID string, start int64) Metadata {
	run := lineage.Run{ID: id, ClientID: clientRunID, Start: start, End: -1, Status: lineage.StatusRunning}
	return Metadata{Run: run, NextSeq: -1, Pending: true}
}

// MetadataOf returns the metadata in a record.
func MetadataOf(r *record.Run) (*Metadata, error) {
	m := &Metadata{Run: LineageOf(r), Next: r.Raw.Next, NextSeq: r.Raw.NextSeq, SinceSnapshot: r.SinceSnapshot,
		Traceparent: r.Traceparent}
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

// Resolved reports whether the run's parent resolution is final.
func (m *Metadata) Resolved() bool { return !m.Pending || m.Placed }

// Decide sets the final parent resolution at the run's first event. rawLost means that events before it may be lost.
func (m *Metadata) Decide(resolved lineage.Run, rawLost bool) {
	start := m.Start // offset of the first record, which may be the input
	m.Run = resolved
	m.Start, m.Pending, m.Placed, m.RawLost = start, false, false, rawLost
}

// IsExpired reports whether the run is abandoned but not sealed.
func (m *Metadata) IsExpired() bool { return !m.Sealed && !m.Open() }

// Expire ends the run at its last record until another record arrives.
func (m *Metadata) Expire() {
	m.Status, m.Synthetic, m.End = lineage.StatusAbandoned, true, m.Next-1
}

// Reactivate reopens an expired run.
func (m *Metadata) Reactivate() { m.Status, m.Synthetic, m.End = lineage.StatusRunning, false, -1 }

// Seal ends the run permanently at its last record. synthetic means that Skein ended it.
func (m *Metadata) Seal(status lineage.Status, synthetic bool) {
	m.Status, m.Sealed, m.Synthetic, m.End = status, true, synthetic, m.Next-1
}
