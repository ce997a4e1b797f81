package compactor

import (
	"crypto/sha256"
	"encoding"
	"fmt"
	"hash"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/record"
)

// run is one run in memory. A run leaves memory once its record is committed: for good if it is
// sealed, else after a while of silence, to be loaded from its record when it goes on.
type run struct {
	key    string // of its record
	thread *thread
	head   *head // shared with the thread

	// rec holds what does not change any more once the run is placed: ids, lineage, input.
	rec record.Run
	// input and inputSum, its hash, are the run's input until its first event.
	input    *agui.RunAgentInput
	inputSum string
	// fold is nil while the run is pending; early then holds its anomalies.
	fold  *compact.Run
	early map[string]int64

	hash      hash.Hash
	events    int64
	ranges    ranges
	startedAt time.Time
	endedAt   time.Time // of the latest folded event
	ttft      *int64

	// dirtyFrom is the first record of the run that is in no committed record, -1 if all are.
	dirtyFrom int64
	// recorded says that a committed record of the run exists.
	recorded bool
	// placed says that a committed record has the run's place. What a pending run's record says of it is
	// for now only: its first event decides.
	placed bool
	// due asks for a record in the next transaction, whatever the checkpoint rule says.
	due       bool
	savedAt   time.Time // when the last record was written, or the run came into memory
	savedSize int       // bytes of the last record
	newBytes  int       // raw bytes since
	touchedAt time.Time
}

func newRun(t *thread, key string, h *head, now time.Time) *run {
	r := &run{
		key: key, thread: t, head: h, hash: sha256.New(), early: map[string]int64{},
		dirtyFrom: -1, savedAt: now, touchedAt: now,
	}
	r.rec = record.Run{Tenant: t.tenant, ThreadID: t.id, RunID: h.ID, GivenRunID: h.GivenID, FoldVersion: compact.Version}
	return r
}

// take notes a record of skein.events as the run's, whatever becomes of it.
func (r *run) take(offset int64, at, now time.Time, size int) {
	r.ranges = r.ranges.add(offset)
	r.head.Next = offset + 1
	if at.After(r.head.LastAt) {
		r.head.LastAt = at
	}
	if r.dirtyFrom < 0 {
		r.dirtyFrom = offset
	}
	r.newBytes += size
	r.touchedAt = now
}

// note counts an anomaly.
func (r *run) note(rule string) {
	if r.fold == nil {
		r.early[rule]++
		return
	}
	r.fold.Note(rule)
}

// sequence notes an event's seq header; -1 is none.
func (r *run) sequence(seq int64) {
	if seq < 0 {
		return
	}
	if seq > max(r.head.NextSeq, 0) {
		r.note(ruleGap)
	}
	r.head.NextSeq = seq + 1
}

// fed notes that an event was folded.
func (r *run) fed(ev *agui.Event, at time.Time) {
	r.hash.Write(ev.Raw)
	r.hash.Write([]byte{'\n'})
	r.events++
	at = eventTime(ev, at)
	if r.events == 1 {
		r.startedAt = at
	}
	if r.ttft == nil && carriesToken(ev.Type) {
		ms := max(0, at.Sub(r.startedAt).Milliseconds())
		r.ttft = &ms
	}
	r.endedAt = at
}

// carriesToken reports whether an event of the type brings what a model made.
func carriesToken(t agui.Type) bool {
	switch t {
	case agui.TextMessageContent, agui.TextMessageChunk, agui.ReasoningMessageContent, agui.ReasoningMessageChunk,
		agui.ToolCallArgs, agui.ToolCallChunk:
		return true
	}
	return false
}

// eventTime is the event's own timestamp, else the Kafka record's. A
// timestamp that is no time between 1970 and 9999 (RFC 3339 ends there) is passed over.
func eventTime(ev *agui.Event, at time.Time) time.Time {
	const last = 253402300799999
	if ev.HasTimestamp && ev.Timestamp > 0 && ev.Timestamp <= last {
		return time.UnixMilli(ev.Timestamp).UTC()
	}
	return at.UTC()
}

// hashState is the running hash as it goes into an open record.
func (r *run) hashState() ([]byte, error) {
	b, err := r.hash.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("saving hash of run: %w", err)
	}
	return b, nil
}

func (r *run) restoreHash(b []byte) error {
	if err := r.hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(b); err != nil {
		return fmt.Errorf("restoring hash of run: %w", err)
	}
	return nil
}
