package partition

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
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

// event is the record as those who fold take it.
func (m *message) event() record.Event {
	return record.Event{Partition: m.Partition, Offset: m.Offset, Time: m.Timestamp, Key: m.Key, Headers: m.headers, Value: m.Value}
}

func (p *Processor) route(m *message) (_ fold.Outcome, err error) {
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
		return "", err
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
			return "", err
		}
	}
	t.usedAt, t.headers = m.now, m.headers
	if !m.rebuilds && !p.streamTime.Before(t.silentAt) {
		if err := p.expireIdleOf(t, m.now); err != nil {
			return "", err
		}
	}
	if m.Offset < t.erased { // between the committed and the processed offset: what was made of it is gone
		return outcomeErased, nil
	}
	switch m.headers.Kind {
	case record.KindEvent, record.KindInput:
		return p.fold(t, m)
	case record.KindErase:
		return p.erase(t, m)
	case record.KindRefold:
		return p.takeRefold(t, m)
	default:
		return p.deadLetter(m, reasonUnknownKind, string(m.headers.Kind))
	}
}

// fold has the loop fold an event or an input, and does what follows from it for the run.
func (p *Processor) fold(t *thread, m *message) (fold.Outcome, error) {
	a := &p.admission
	*a = admission{p: p, thread: t, message: m}
	taken, outcome, err := p.loop.Next(m.event())
	if taken == nil || err != nil {
		return outcome, err
	}
	r := a.run
	if outcome != fold.Malformed || !a.isNew { // no run begins with what cannot be folded
		if a.isNew {
			p.register(r)
		}
		if err := p.noteRecord(r, m); err != nil {
			return "", err
		}
	}
	switch outcome {
	case fold.Folded, fold.SyntheticEnd:
		return outcomeFolded, p.advance(r, a.resolution, m)
	case fold.Malformed:
		return p.deadLetter(m, reasonMalformed, p.loop.Decoded().Malformed().Error())
	}
	if r.Fold == nil && m.headers.Kind == record.KindInput {
		err = p.reactivate(r)
	}
	if outcome == fold.Repeat {
		return outcomeDropped, err
	}
	return outcome, err
}

// advance does what follows from an event that was folded; at the run's first one, resolved is its parent resolution.
func (p *Processor) advance(r *run, resolved *resolution, m *message) error {
	if err := p.reactivate(r); err != nil { // before its resolution says that it is open
		return err
	}
	if resolved != nil {
		if err := p.decide(r, resolved); err != nil {
			return err
		}
		p.countAnomalies(m, resolved.Anomalies)
	}
	if r.Fold.Ended() {
		return p.seal(r)
	}
	return p.endOutgrown(r, len(p.loop.Decoded().Payload().Raw))
}

// countAnomalies counts anomalies for the metric; below the processed offset that was done before.
func (p *Processor) countAnomalies(m *message, rules []string) {
	if m.rebuilds {
		return
	}
	for _, rule := range rules {
		p.counts.Anomalies[rule]++
	}
}

// recordOfRun returns the latest record of a run.
func (p *Processor) recordOfRun(t *thread, h *threadRun) (*record.Run, error) {
	key, err := record.RunKey(t.tenant, t.id, h.ID)
	if err != nil {
		return nil, fmt.Errorf("reading record of run: %w", err)
	}
	rec, _, err := p.recordOf(key)
	return rec, err
}
