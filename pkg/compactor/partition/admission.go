package partition

import (
	"bytes"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

// admission implements fold.Runs for one record: it finds the run that an event or an input belongs to, and begins a run at its first
// event.
type admission struct {
	p       *Processor
	thread  *thread
	message *message

	run *run // that the record belongs to
	// isNew: the run begins with this record, and is not registered yet.
	isNew bool
	// resolution is set if this is the run's first event, or may be.
	resolution *resolution
}

// Find implements fold.Runs.
func (a *admission) Find(d *fold.Decoded) (*fold.Run, fold.Outcome, error) {
	id := d.ClientRunID()
	h, err := a.named(id, d)
	if err != nil {
		return nil, "", err
	}
	begins := h == nil
	if h != nil {
		switch {
		case d.Offset < h.Next: // a committed record has it
			return nil, outcomeDropped, nil
		case !h.Sealed:
			return a.takes(a.p.load(a.thread, h, a.message.now))
		}
		if begins, err = a.beginsAgain(h, d); err != nil {
			return nil, "", err
		}
	}
	switch malformed := d.Malformed(); {
	case !begins && repeats(h, d): // the record of a sealed run does not change
		return nil, outcomeDropped, nil
	case malformed != nil:
		return a.deadLetter(reasonMalformed, malformed.Error())
	case !begins && d.Payload().Type.Terminal():
		return nil, outcomeTerminal, nil
	case !begins:
		return a.deadLetter(reasonAfterTerminal, "run "+h.ID)
	case id == "":
		return a.deadLetter(reasonNoRun, "")
	}
	a.isNew = true
	return a.takes(a.newRun(id, d))
}

// Begin implements fold.Runs.
func (a *admission) Begin(_ *fold.Run, first *fold.Decoded, input *agui.RunAgentInput) (_ *compact.Run, err error) {
	if a.resolution, err = a.p.resolve(a.run, first.Payload(), input, first.Offset); err != nil {
		return nil, err
	}
	for _, rule := range a.resolution.Anomalies {
		a.resolution.fold.Note(rule)
	}
	a.resolution.before = a.run.pending(first.Offset, a.p.clock.stream)
	return a.resolution.fold, nil
}

// named returns the run that a record means, by its id or, for an event without one, by where it lies; nil if there is none.
func (a *admission) named(id string, d *fold.Decoded) (*threadRun, error) {
	switch {
	case id != "":
		return a.thread.named(id, d.Offset)
	case d.Headers.Kind == record.KindEvent:
		return a.thread.current(d.Offset, a.message.rebuilds), nil
	default:
		return nil, nil
	}
}

// beginsAgain reports whether a record begins another run with the id of a sealed one: a RUN_STARTED or an input. A producer that numbers
// its events repeats them after a broken connection: its repeats of what the sealed run has begin no run.
func (a *admission) beginsAgain(h *threadRun, d *fold.Decoded) (bool, error) {
	switch ev := d.Payload(); {
	case d.Input() != nil:
		if h.NextSeq < 0 {
			return true, nil
		}
		rec, err := a.p.recordOfRun(a.thread, h)
		return err == nil && rec.InputSHA256 != d.SHA256(), err
	case ev != nil && ev.Type == agui.RunStarted:
		if !fold.Behind(d.Headers.Seq, h.NextSeq) {
			return true, nil
		}
		rec, err := a.p.recordOfRun(a.thread, h)
		if err != nil {
			return false, err
		}
		return !bytes.Equal(record.Compacted(agui.Without(ev.Body, agui.FieldInput.String())), record.Compacted(rec.Started)), nil
	default:
		return false, nil
	}
}

// repeats reports whether a sealed run already has a record that begins no run.
func repeats(h *threadRun, d *fold.Decoded) bool {
	if d.Headers.Kind == record.KindInput {
		return d.Input() != nil
	}
	return fold.Behind(d.Headers.Seq, h.NextSeq)
}

// newRun returns a run that begins with a record, under its client run id or, if that is taken, another one (freeID).
func (a *admission) newRun(clientRunID string, d *fold.Decoded) (*run, error) {
	t := a.thread
	id, err := t.freeID(clientRunID, d.Offset)
	if err != nil {
		return nil, err
	}
	if id == clientRunID {
		clientRunID = ""
	}
	h := newThreadRun(id, clientRunID, d.Offset)
	key, err := record.RunKey(t.tenant, t.id, id)
	if err != nil {
		return nil, fmt.Errorf("starting run: %w", err)
	}
	r := newRun(t, key, h, a.message.now)
	if ev := d.Payload(); ev != nil {
		r.rec.RawLost = a.p.mayHaveBegunInGap(ev, a.message.now)
	}
	return r, nil
}

// takes returns a run as Find does.
func (a *admission) takes(r *run, err error) (*fold.Run, fold.Outcome, error) {
	if err != nil {
		return nil, "", err
	}
	a.run = r
	return r.Run, "", nil
}

func (a *admission) deadLetter(reason, detail string) (*fold.Run, fold.Outcome, error) {
	outcome, err := a.p.deadLetter(a.message, reason, detail)
	return nil, outcome, err
}
