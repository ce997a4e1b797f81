package fold

import (
	"bytes"
	"cmp"
	"errors"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/record"
)

// Outcome is the result of folding one record.
type Outcome string

// The outcomes of a run's records. Runs.Find may return others.
const (
	// Folded: the event is included in the run's record, count and hash.
	Folded Outcome = "folded"
	// SyntheticEnd: a terminal event that Skein's proxy wrote in place of the agent, or a malformed one, which Decoded also
	// reports as malformed. The run's record marks it, but does not count or hash it.
	SyntheticEnd Outcome = "synthetic-end"
	// Repeat: the record was dropped. It is an event whose seq is not above all earlier ones (Sequence), or the same input
	// again.
	Repeat Outcome = "repeat"
	// Malformed: the record is not an event or input, or the run cannot fold it.
	Malformed Outcome = "malformed"
	// Input: the run's RunAgentInput, or an input that arrived too late.
	Input Outcome = "input"
)

// Run is a run that a Loop folds.
type Run struct {
	// ThreadID is the thread's id, ID the run's id, ClientID its client run id.
	ThreadID, ID, ClientID string

	// Fold is nil before the first event.
	Fold *compact.Run
	// Tally counts the folded events.
	Tally *Tally
	// Producer is the agent and the labels of the run.
	Producer Producer
	// Synthetic means that the terminal event is not the agent's.
	Synthetic bool
	// Seq tracks the producer's sequence numbers.
	Seq Sequence
	// Early holds the anomalies before the first event. The first event moves them into the fold.
	Early map[string]int64
	// Input is the run's latest input so far, InputSHA256 its hash.
	Input       *agui.RunAgentInput
	InputSHA256 string
	// Placed is the parent resolution in the run's record, until the run's first event is read again; else nil.
	Placed *Resolution
	// FirstMalformed is why the first malformed record was not folded.
	FirstMalformed string
	// Noted lists the anomalies of the last record.
	Noted []string
}

// NewRun returns a run without records.
func NewRun(threadID, id, clientID string) *Run {
	return &Run{ThreadID: threadID, ID: id, ClientID: clientID, Tally: NewTally(), Seq: NewSequence(), Early: map[string]int64{}}
}

// step folds the next record of the run. An error comes from Begin.
func (r *Run) step(d *Decoded, start starter) (outcome Outcome, err error) {
	r.Noted = r.Noted[:0]
	switch {
	case d.Headers.Kind == record.KindInput:
		outcome, err = r.takeInput(d)
	case Behind(d.Headers.Seq, r.Seq.Next):
		r.note(r.Seq.Drop(d.Headers.Seq))
		outcome = Repeat
	default:
		outcome, err = r.takeEvent(d, start)
	}
	if err == nil {
		r.Producer.Take(&d.Headers)
	}
	return outcome, err
}

func (r *Run) takeEvent(d *Decoded, start starter) (Outcome, error) {
	ev := d.Payload()
	if ev == nil {
		return r.refuse(d), nil
	}
	into, input, sum := r.Fold, r.Input, r.InputSHA256
	if into == nil {
		if input == nil {
			input, sum = InputOf(ev, r.ID)
		}
		var err error
		if into, err = start.Begin(r, d, input); err != nil {
			return "", err
		}
	}
	synthetic := d.SyntheticEnd()
	var err error
	if synthetic {
		err = into.End(ev)
	} else {
		err = into.Apply(ev)
	}
	if err != nil {
		if !agui.IsMalformed(err) && !errors.Is(err, compact.ErrEnded) {
			return "", err
		}
		d.malformed = err
		return r.refuse(d), nil
	}
	if r.Fold == nil {
		r.Fold, r.Input, r.InputSHA256 = into, input, sum
		for rule, n := range r.Early {
			for range n {
				into.Note(rule)
			}
		}
	}
	r.sequence(&d.Headers)
	if d.inPlace {
		r.noteMalformed(d)
	}
	r.compare(ev.ThreadID, ev.RunID)
	if synthetic {
		r.Tally.End(ev, d.Time)
		r.Synthetic = true
		return SyntheticEnd, nil
	}
	r.Tally.Add(ev, d.Time)
	return Folded, nil
}

func (r *Run) takeInput(d *Decoded) (Outcome, error) {
	in := d.Input()
	switch {
	case in == nil:
		return r.refuse(d), nil
	case r.InputSHA256 == d.SHA256():
		return Repeat, nil
	case r.Fold != nil:
		r.note(AnomalyLateInput)
		return Input, nil
	case in.RunID != r.ID: // decoding generates ids from the run id
		var err error
		if in, err = agui.DecodeInput(bytes.Clone(d.Value), r.ID); err != nil {
			return "", err
		}
	}
	if r.Input != nil {
		r.note(AnomalyInputReplaced)
	}
	if r.Tally.StartedAt.IsZero() {
		r.Tally.StartedAt = d.Time.UTC()
	}
	r.Input, r.InputSHA256 = in, d.SHA256()
	r.compare(in.ThreadID, in.RunID)
	return Input, nil
}

func (r *Run) refuse(d *Decoded) Outcome {
	r.sequence(&d.Headers)
	r.noteMalformed(d)
	return Malformed
}

func (r *Run) noteMalformed(d *Decoded) {
	r.note(AnomalyMalformed)
	r.FirstMalformed = cmp.Or(r.FirstMalformed, textOf(d.malformed))
}

func (r *Run) sequence(h *record.Headers) {
	if r.Seq.Take(h.Seq) {
		r.note(AnomalyGap)
	}
	if h.Incomplete > 0 {
		r.note(AnomalyIncomplete)
	}
}

func (r *Run) compare(thread, run string) {
	if thread != "" && thread != r.ThreadID {
		r.note(AnomalyThread)
	}
	if run != "" && run != r.ClientID {
		r.note(AnomalyRun)
	}
}

func (r *Run) note(rule string) {
	r.Noted = append(r.Noted, rule)
	if r.Fold == nil {
		r.Early[rule]++
		return
	}
	r.Fold.Note(rule)
}
