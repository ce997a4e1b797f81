package fold

import (
	"errors"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Outcome is what became of a record.
type Outcome string

// The outcomes of a run's records.
const (
	// Folded: the event is in the run's record, its count and its hash.
	Folded Outcome = "folded"
	// SyntheticEnd: Skein's proxy ended the run with it in the agent's place. The record says so, and neither counts nor hashes it.
	SyntheticEnd Outcome = "synthetic-end"
	// Repeat: an event whose seq is below one that was seen (Sequence), or the same input once more; it was dropped.
	Repeat Outcome = "repeat"
	// Malformed: not an event, or not one that can be folded there.
	Malformed Outcome = "malformed"
	// Input: the run's RunAgentInput, or one that came too late to count.
	Input Outcome = "input"
)

// Run goes over the records of one run, from its first to the last that its record holds, and decides
// about each what the compactor has decided.
type Run struct {
	// Span is the run's, ThreadID its thread's id.
	Span     Span
	ThreadID string
	// Begin starts the fold at the run's first event, with the input that came before it or in it (nil
	// without one) and its hash. Nil: the run is folded from nothing, which is enough to know what can
	// be folded, as that does not depend on the messages and state before the run.
	Begin func(input *agui.RunAgentInput, sum string) (*compact.Run, error)

	// BaseKey names the history of the run's base, where the caller knows that; nil where not. What a run only
	// adds to is not gone over again then.
	BaseKey *lineage.Key

	// Fold is nil before the first event.
	Fold *compact.Run
	// Tally counts the folded events.
	Tally *Tally
	// Producer is what the records say of who produced the run.
	Producer Producer
	// Synthetic: the end that came is not the agent's.
	Synthetic bool
	// Seq is what is known of the producer's numbers.
	Seq Sequence
	// Early holds the anomalies from before the first event, which are the fold's from then on.
	Early map[string]int64
	// Input is the one that the run has so far, InputSHA256 its hash.
	Input       *agui.RunAgentInput
	InputSHA256 string

	event agui.Event
}

// NewRun returns a run before its first record.
func NewRun(span Span, threadID string) *Run {
	return &Run{Span: span, ThreadID: threadID, Tally: NewTally(), Seq: NewSequence(), Early: map[string]int64{}}
}

// Take takes the next record that belongs to the run. The error is never about the record.
func (r *Run) Take(e record.Event) (Outcome, error) {
	r.Producer.Take(e.Headers)
	if e.Headers.Kind == record.KindInput {
		return r.takeInput(e), nil
	}
	ev := &r.event
	whole := ev.Decode(e.Value) == nil
	switch {
	case Behind(e.Headers.Seq, r.Seq.Next):
		r.note(r.Seq.Drop(e.Headers.Seq))
		return Repeat, nil
	case !whole:
		return r.refuse(e), nil
	}
	fold, err := r.fold(ev)
	if err != nil {
		return "", err
	}
	synthetic := IsSyntheticEnd(e.Headers, ev)
	if err := Apply(fold, ev, synthetic); err != nil {
		if !agui.IsMalformed(err) && !errors.Is(err, compact.ErrEnded) {
			return "", err
		}
		return r.refuse(e), nil
	}
	if r.Fold == nil {
		r.Fold = fold
		for rule, n := range r.Early {
			for range n {
				fold.Note(rule)
			}
		}
	}
	r.sequence(e.Headers)
	r.compare(ev.ThreadID, ev.RunID)
	if synthetic {
		r.Tally.End(ev, e.Time)
		r.Synthetic = true
		return SyntheticEnd, nil
	}
	r.Tally.Add(ev, e.Time)
	return Folded, nil
}

// Event is the event that was taken last, or is being taken. It aliases the message.
func (r *Run) Event() *agui.Event { return &r.event }

// fold returns the run's fold, or before the first event the one that starts with it.
func (r *Run) fold(ev *agui.Event) (*compact.Run, error) {
	switch {
	case r.Fold != nil:
		return r.Fold, nil
	case r.Begin == nil:
		return compact.New(nil, nil), nil
	}
	if r.Input == nil {
		r.Input, r.InputSHA256 = InputOf(ev, r.Span.RunID)
	}
	return r.Begin(r.Input, r.InputSHA256)
}

func (r *Run) takeInput(e record.Event) Outcome {
	in, malformed := agui.DecodeInput(e.Value, r.Span.RunID)
	if malformed != nil {
		return r.refuse(e)
	}
	sum := record.SHA256(e.Value)
	switch {
	case r.InputSHA256 == sum:
		return Repeat
	case r.Fold != nil:
		r.note(AnomalyLateInput)
		return Input
	case r.Input != nil:
		r.note(AnomalyInputReplaced)
	default:
		r.Tally.StartedAt = e.Time.UTC()
	}
	r.Input, r.InputSHA256 = in, sum
	r.compare(in.ThreadID, in.RunID)
	return Input
}

func (r *Run) refuse(e record.Event) Outcome {
	r.sequence(e.Headers)
	r.note(AnomalyMalformed)
	return Malformed
}

func (r *Run) sequence(h record.Headers) {
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
	if run != "" && run != r.Span.Given {
		r.note(AnomalyRun)
	}
}

func (r *Run) note(rule string) {
	if r.Fold == nil {
		r.Early[rule]++
		return
	}
	r.Fold.Note(rule)
}
