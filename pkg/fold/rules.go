package fold

import (
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/record"
)

// The anomalies that are found in how a run's records came; the fold and lineage have their own.
const (
	// AnomalyMalformed: an event of the run is not one; it is not folded.
	AnomalyMalformed = "malformed"
	// AnomalyLateInput: an input came after the run's first event; it changes nothing.
	AnomalyLateInput = "input-after-start"
	// AnomalyInputReplaced: a second, different input came before the first event; the last one counts.
	AnomalyInputReplaced = "input-replaced"
	// AnomalyRepeat: an event's seq was seen before; it is dropped.
	AnomalyRepeat = "repeated-seq"
	// AnomalyBackwards: an event's seq is below one that was seen, and was not seen itself; it is dropped all the same.
	AnomalyBackwards = "seq-backwards"
	// AnomalyGap: a seq is missing; what came is folded.
	AnomalyGap = "seq-gap"
	// AnomalyIncomplete: Skein's proxy left records of the run out, once or more often; what came is folded.
	AnomalyIncomplete = "incomplete"
	// AnomalyThread and AnomalyRun: the payload names another thread or run than key and header.
	AnomalyThread = "thread-mismatch"
	AnomalyRun    = "run-mismatch"
)

// Rules are these anomalies.
func Rules() []string {
	return []string{
		AnomalyMalformed, AnomalyLateInput, AnomalyInputReplaced, AnomalyRepeat, AnomalyBackwards, AnomalyGap, AnomalyIncomplete, AnomalyThread, AnomalyRun,
	}
}

// IsSyntheticEnd reports whether an event is an end that Skein's proxy wrote in the agent's place. It ends the run as one of the agent
// would, and is neither counted nor hashed: those speak of what the agent said.
func IsSyntheticEnd(h record.Headers, ev *agui.Event) bool {
	return h.Synthetic && (ev.Type == agui.RunFinished || ev.Type == agui.RunError)
}

// Apply folds an event of a run, which may be a synthetic end; errors are those of compact.Run.Apply.
func Apply(fold *compact.Run, ev *agui.Event, syntheticEnd bool) error {
	if syntheticEnd {
		return fold.End(ev)
	}
	return fold.Apply(ev)
}

// Named returns the run that an event names, by the agent's id: in its header, else RUN_STARTED and
// RUN_FINISHED in their payload; "" where it names none. ev is nil where the event is malformed.
func Named(h record.Headers, ev *agui.Event) string {
	if h.RunID != "" || ev == nil {
		return h.RunID
	}
	if (ev.Type == agui.RunStarted || ev.Type == agui.RunFinished) && record.ValidateID(ev.RunID) == nil {
		return ev.RunID
	}
	return ""
}

// InputNamed is Named for an input; in is nil where it is malformed.
func InputNamed(h record.Headers, in *agui.RunAgentInput) string {
	if h.RunID != "" || in == nil || record.ValidateID(in.RunID) != nil {
		return h.RunID
	}
	return in.RunID
}

// NamedBy is Named, or InputNamed, for a raw record's value.
func NamedBy(h record.Headers, value []byte) string {
	switch {
	case h.RunID != "":
		return h.RunID
	case h.Kind == record.KindInput:
		in, err := agui.DecodeInput(value, "")
		if err != nil {
			return ""
		}
		return InputNamed(h, in)
	}
	ev, err := agui.Decode(value)
	if err != nil {
		return ""
	}
	return Named(h, ev)
}
