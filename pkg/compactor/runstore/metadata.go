package runstore

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Metadata is what routing and parent resolution need of a run: a small part of its record. The store keeps it beside each record, so
// that resolving a parent does not read whole conversations.
//
// Its Start is the offset of the run's first record, be it an input or an event, and its End that of its last one once it has ended.
// A run is sealed once its record has nothing to go on from: a terminal event ended it, or it was expired and then closed, or is too
// large. Its record does not change after that.
type Metadata struct {
	lineage.Run
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

// MetadataOf takes the metadata out of a record.
func MetadataOf(r *record.Run) (*Metadata, error) {
	m := &Metadata{
		Run:  fold.LineageOf(r),
		Next: r.Raw.Next, NextSeq: r.Raw.NextSeq, SinceSnapshot: r.SinceSnapshot,
	}
	m.Sealed = r.Open == nil
	if r.Open != nil {
		m.LastAt, m.Pending, m.Placed = r.Open.LastAt, r.Open.Pending, r.Open.Placed
	}
	if err := m.HistoryKey.UnmarshalText([]byte(r.HistoryKey)); err != nil {
		return nil, fmt.Errorf("reading metadata of run: %w", err)
	}
	return m, nil
}

// metadataJSON is a run's metadata in the store.
type metadataJSON struct {
	*Metadata
	SpawnedBy agui.String `json:"spawnedBy,omitempty"`
}

func (m *Metadata) encode() ([]byte, error) {
	b, err := json.Marshal(metadataJSON{m, agui.String(m.SpawnedBy)})
	if err != nil {
		return nil, fmt.Errorf("encoding metadata of run: %w", err)
	}
	return b, nil
}

func decodeMetadata(b []byte) (*Metadata, error) {
	w := metadataJSON{Metadata: new(Metadata)}
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("decoding metadata of run: %w", err)
	}
	w.Metadata.SpawnedBy = string(w.SpawnedBy)
	return w.Metadata, nil
}
