package partition

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// message is one record of skein.events on its way through a partition.
type message struct {
	*kgo.Record
	headers record.Headers
	// rebuilds: the record lies below the processed offset, so it only rebuilds runs.
	rebuilds bool
	now      time.Time
}

func (p *Processor) route(m *message) (_ outcome, err error) {
	if len(m.Value) > p.cfg.RecordLimit {
		return p.deadLetter(m, reasonTooLarge, fmt.Sprintf("%d bytes, %d are allowed", len(m.Value), p.cfg.RecordLimit))
	}
	t := p.threads[string(m.Key)] // a key that is in memory was checked before
	var tenant, id string
	if t == nil {
		parts, err := record.SplitKey(string(m.Key))
		if err != nil {
			return p.deadLetter(m, reasonBadKey, err.Error())
		}
		if len(parts) != 2 {
			return p.deadLetter(m, reasonBadKey, "want tenant/thread")
		}
		if want := record.Partition(m.Key, p.count); want != p.id {
			return p.deadLetter(m, reasonWrongPartition, fmt.Sprintf("the key belongs to partition %d of %d", want, p.count))
		}
		tenant, id = parts[0], parts[1]
	}
	var like record.Headers
	if t != nil {
		like = t.headers
	}
	m.headers, err = kafka.ParseHeadersLike(m.Headers, like)
	switch {
	case errors.Is(err, record.ErrUnknownVersion):
		return 0, err
	case errors.Is(err, record.ErrUnknownKind):
		return p.deadLetter(m, reasonUnknownKind, err.Error())
	case err != nil:
		return p.deadLetter(m, reasonBadHeaders, err.Error())
	}
	if m.headers.Kind == record.KindCancel { // no sign of life of the run, be there one or not
		return outcomeCancel, nil
	}
	if t == nil {
		if t, err = p.thread(string(m.Key), tenant, id); err != nil {
			return 0, err
		}
	}
	t.usedAt, t.headers = m.now, m.headers
	if !m.rebuilds && !p.streamTime.Before(t.silentAt) {
		if err := p.expireIdleOf(t, m.now); err != nil {
			return 0, err
		}
	}
	if m.Offset < t.erased { // between the committed and the processed offset: what was made of it is gone
		return outcomeErased, nil
	}
	switch m.headers.Kind {
	case record.KindEvent:
		return p.takeEvent(t, m)
	case record.KindInput:
		return p.takeInput(t, m)
	case record.KindErase:
		return p.erase(t, m)
	case record.KindRefold:
		return p.takeRefold(t, m)
	default:
		return p.deadLetter(m, reasonUnknownKind, string(m.headers.Kind))
	}
}

// decode returns the record for decoding, by the rules of everybody who folds.
func (p *Processor) decode(m *message) *fold.Decoded {
	p.decoded.Decode(record.Event{Partition: m.Partition, Offset: m.Offset, Time: m.Timestamp, Key: m.Key, Headers: m.headers, Value: m.Value})
	return &p.decoded
}

// takeEvent folds one event into its run.
func (p *Processor) takeEvent(t *thread, m *message) (outcome, error) {
	d := p.decode(m)
	ev, malformed, clientRunID := d.Payload(), d.Malformed(), d.ClientRunID()
	var h *threadRun
	if clientRunID != "" {
		var err error
		if h, err = t.named(clientRunID, m.Offset); err != nil {
			return 0, err
		}
	} else {
		h = t.current(m.Offset, m.rebuilds)
	}
	if h != nil && h.Sealed && m.Offset >= h.Next && malformed == nil && ev.Type == agui.RunStarted {
		again, err := p.startsAgain(t, h, ev)
		if err != nil {
			return 0, err
		}
		if again || !fold.Behind(m.headers.Seq, h.NextSeq) {
			return p.fold(t, nil, clientRunID, ev, m)
		}
	}
	switch {
	case h != nil && m.Offset < h.Next: // a committed record holds it
		return outcomeDropped, nil
	case h != nil && fold.Behind(m.headers.Seq, h.NextSeq):
		return p.repeat(t, h, m)
	case h != nil && h.Sealed && malformed == nil:
		if ev.Type == agui.RunFinished || ev.Type == agui.RunError {
			return outcomeTerminal, nil
		}
		return p.deadLetter(m, reasonAfterTerminal, "run "+h.ID)
	case h != nil && h.Sealed:
		return p.deadLetter(m, reasonMalformed, malformed.Error())
	}

	if malformed != nil {
		return p.refuse(t, h, m, malformed)
	}
	if h == nil && clientRunID == "" {
		return p.deadLetter(m, reasonNoRun, "")
	}
	return p.fold(t, h, clientRunID, ev, m)
}

// startsAgain reports whether a RUN_STARTED is another one than that of the sealed run, so that the
// id is used again. A producer that numbers its events and repeats them after a broken connection sends
// the same one.
func (p *Processor) startsAgain(t *thread, h *threadRun, ev *agui.Event) (bool, error) {
	rec, err := p.recordOfRun(t, h)
	if err != nil {
		return false, err
	}
	return !bytes.Equal(record.Compacted(agui.Without(ev.Body, agui.FieldInput.String())), record.Compacted(rec.Started)), nil
}

// repeatsInput reports whether an input is that of the sealed run, sent again. Where the producer
// numbers its events, a repeat is a retry; where it does not, the id is used again.
func (p *Processor) repeatsInput(t *thread, h *threadRun, sum string) (bool, error) {
	if h.NextSeq < 0 {
		return false, nil
	}
	rec, err := p.recordOfRun(t, h)
	if err != nil {
		return false, err
	}
	return rec.InputSHA256 == sum, nil
}

func (p *Processor) recordOfRun(t *thread, h *threadRun) (*record.Run, error) {
	key, err := record.RunKey(t.tenant, t.id, h.ID)
	if err != nil {
		return nil, fmt.Errorf("reading record of run: %w", err)
	}
	rec, _, err := p.recordOf(key)
	return rec, err
}

// fold folds an event into the run of h, or into a new one with the agent's id given.
func (p *Processor) fold(t *thread, h *threadRun, clientRunID string, ev *agui.Event, m *message) (outcome, error) {
	r, fresh, err := p.runFor(t, h, clientRunID, m)
	if err != nil {
		return 0, err
	}
	if fresh {
		r.rec.RawLost = p.mayHaveBegunInGap(ev, m.now)
	}
	into := r.fold
	var placed *resolution
	if into == nil {
		if placed, err = p.place(r, ev, m.Offset); err != nil {
			return 0, err
		}
		into = placed.fold
	}
	apply, synthetic := into.Apply, p.decoded.SyntheticEnd()
	if synthetic {
		apply = into.End
	}
	if err := apply(ev); err != nil { // nothing was folded, so nothing is decided either
		if !agui.IsMalformed(err) {
			return 0, err
		}
		return p.refuse(t, h, m, err)
	}
	if placed != nil {
		placed.before = r.pending(m.Offset, p.streamTime)
	}
	if fresh {
		p.register(r)
	}
	if err := p.noteRecord(r, m); err != nil {
		return 0, err
	}
	if err := p.reactivate(r); err != nil { // before its place says that it is open
		return 0, err
	}
	if placed != nil {
		if err := p.decide(r, placed); err != nil {
			return 0, err
		}
		for _, rule := range placed.Anomalies {
			p.anomaly(r, m, rule)
		}
	}
	r.takeSeq(m.headers)
	if synthetic {
		r.tally.End(ev, m.Timestamp)
		r.rec.Synthetic = true
	} else {
		r.tally.Add(ev, m.Timestamp)
	}
	if ev.ThreadID != "" && ev.ThreadID != t.id {
		p.anomaly(r, m, ruleThread)
	}
	if ev.RunID != "" && ev.RunID != r.meta.Given() {
		p.anomaly(r, m, ruleRun)
	}
	if r.fold.Ended() {
		return outcomeFolded, p.seal(r)
	}
	return outcomeFolded, p.endOutgrown(r, len(ev.Raw))
}

// refuse sends an event that is none to dead letters, counted as an anomaly of its run (h may be nil).
func (p *Processor) refuse(t *thread, h *threadRun, m *message, reason error) (outcome, error) {
	if h != nil {
		r, err := p.load(t, h, m.now)
		if err != nil {
			return 0, err
		}
		if err := p.noteRecord(r, m); err != nil {
			return 0, err
		}
		r.takeSeq(m.headers)
		p.anomaly(r, m, ruleMalformed)
	}
	return p.deadLetter(m, reasonMalformed, reason.Error())
}

// repeat drops an event whose seq is below one that was seen.
func (p *Processor) repeat(t *thread, h *threadRun, m *message) (outcome, error) {
	if h.Sealed { // its record does not change any more
		return outcomeDropped, nil
	}
	r, err := p.load(t, h, m.now)
	if err != nil {
		return 0, err
	}
	if err := p.noteRecord(r, m); err != nil {
		return 0, err
	}
	s := r.sequence()
	p.anomaly(r, m, s.Drop(m.headers.Seq))
	r.setSequence(s)
	return outcomeDropped, nil
}

// takeInput takes a run's input that was sent beside the stream.
func (p *Processor) takeInput(t *thread, m *message) (outcome, error) {
	d := p.decode(m)
	in, malformed, clientRunID := d.Input(), d.Malformed(), d.ClientRunID()
	if clientRunID == "" {
		if malformed != nil {
			return p.deadLetter(m, reasonMalformed, malformed.Error())
		}
		return p.deadLetter(m, reasonNoRun, "")
	}
	h, err := t.named(clientRunID, m.Offset)
	if err != nil {
		return 0, err
	}
	if h != nil && m.Offset < h.Next {
		return outcomeDropped, nil
	}
	sum := d.SHA256()
	if h != nil && h.Sealed {
		if malformed == nil {
			if repeated, err := p.repeatsInput(t, h, sum); repeated || err != nil {
				return outcomeDropped, err
			}
		}
		h = nil // the id is used again
	}
	if malformed != nil {
		return p.refuse(t, h, m, malformed)
	}
	if h != nil && !h.Pending {
		r, err := p.load(t, h, m.now)
		if err != nil {
			return 0, err
		}
		if err := p.noteRecord(r, m); err != nil {
			return 0, err
		}
		if r.rec.InputSHA256 == sum { // sent twice
			return outcomeDropped, nil
		}
		p.anomaly(r, m, ruleLateInput)
		return outcomeInput, nil
	}

	r, fresh, err := p.runFor(t, h, clientRunID, m)
	if err != nil {
		return 0, err
	}
	if fresh {
		r.tally.StartedAt = m.Timestamp.UTC()
		p.register(r)
	}
	if err := p.noteRecord(r, m); err != nil {
		return 0, err
	}
	if err := p.reactivate(r); err != nil {
		return 0, err
	}
	if r.inputSum == sum { // sent twice
		return outcomeDropped, nil
	}
	if r.input != nil {
		p.anomaly(r, m, ruleInputReplaced)
	}
	if in.RunID != r.meta.ID { // ids that it makes contain that
		if in, err = agui.DecodeInput(bytes.Clone(m.Value), r.meta.ID); err != nil {
			return 0, err
		}
	}
	r.setInput(in, sum)
	if in.ThreadID != "" && in.ThreadID != t.id {
		p.anomaly(r, m, ruleThread)
	}
	if in.RunID != "" && in.RunID != clientRunID {
		p.anomaly(r, m, ruleRun)
	}
	return outcomeInput, nil
}

// runFor returns the run of h in memory, or for nil a new run that is not registered yet.
func (p *Processor) runFor(t *thread, h *threadRun, clientRunID string, m *message) (r *run, fresh bool, err error) {
	if h != nil {
		r, err = p.load(t, h, m.now)
		return r, false, err
	}
	id, err := t.freeID(clientRunID, m.Offset)
	if err != nil {
		return nil, false, err
	}
	h = &threadRun{Metadata: runstore.Metadata{NextSeq: -1, Pending: true}}
	h.Run = lineage.Run{ID: id, Start: m.Offset, End: -1, Status: lineage.StatusRunning}
	if h.ID != clientRunID {
		h.ClientID = clientRunID
	}
	key, err := record.RunKey(t.tenant, t.id, h.ID)
	if err != nil {
		return nil, false, fmt.Errorf("starting run: %w", err)
	}
	return newRun(t, key, h, m.now), true, nil
}

func (p *Processor) anomaly(r *run, m *message, rule string) {
	r.note(rule)
	if !m.rebuilds {
		p.counts.Anomalies[rule]++
	}
}
