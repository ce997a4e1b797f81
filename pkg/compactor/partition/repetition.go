package partition

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

// Repetition names a run that was sent again with other bytes.
type Repetition struct{ Tenant, ThreadID, RunID string }

// repetition hashes the events of a run that is sent again.
type repetition struct {
	runID string
	next  int64
	hash  hash.Hash
}

// repeated returns the outcome of a record that repeats one of a run. At the last event that the run has it compares the hash of what was
// sent again with that of the run. It knows nothing of a run that is not sent again from 0 on in order, of one whose events are mixed with
// those of another repetition in the thread, of one that lacks an event, and of what a process read before it stopped.
func (p *Processor) repeated(t *thread, m *message) (fold.Outcome, error) {
	if m.event.Headers.Kind != record.KindEvent {
		return outcomeDropped, nil
	}
	if m.event.Headers.Seq == 0 {
		t.again = repetition{runID: t.Member.ID, hash: sha256.New()}
	}
	again := &t.again
	if again.hash == nil || again.runID != t.Member.ID || again.next != m.event.Headers.Seq {
		t.again = repetition{}
		return outcomeDropped, nil
	}
	again.next++
	again.hash.Write(m.Value)
	again.hash.Write([]byte{'\n'})
	open, next := t.Member.live, t.Member.NextSeq
	if open != nil {
		next = open.Seq.Next
	}
	if again.next < next {
		return outcomeDropped, nil
	}
	sum := hex.EncodeToString(again.hash.Sum(nil))
	t.again = repetition{}
	if open != nil {
		if open.Tally.Events != next || open.Tally.SHA256() == sum {
			return outcomeDropped, nil
		}
	} else if rec, err := t.Record(t.Member); err != nil || rec.Raw.Events != rec.Raw.NextSeq || !fold.Steady(rec) || rec.Raw.SHA256 == sum {
		return outcomeDropped, err
	}
	p.differing = append(p.differing, Repetition{t.tenant, t.id, t.Member.ID})
	return outcomeDiffers, nil
}
