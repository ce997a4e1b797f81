package fold

// Anomalies in the sequence of a run's records. Packages compact and lineage define others.
const (
	// AnomalyMalformed: an event of the run is malformed and was not folded.
	AnomalyMalformed = "malformed"
	// AnomalyLateInput: an input arrived after the run's first event and was ignored.
	AnomalyLateInput = "input-after-start"
	// AnomalyInputReplaced: a second, different input arrived before the first event. The last one counts.
	AnomalyInputReplaced = "input-replaced"
	// AnomalyRepeat: an event's seq was seen before. The event was dropped.
	AnomalyRepeat = "repeated-seq"
	// AnomalyBackwards: an event's seq is new but lower than an earlier one. The event was dropped.
	AnomalyBackwards = "seq-backwards"
	// AnomalyGap: a seq is missing. The other events are folded.
	AnomalyGap = "seq-gap"
	// AnomalyIncomplete: Skein's proxy left out events of the run. The others are folded.
	AnomalyIncomplete = "incomplete"
	// AnomalyThread and AnomalyRun: the payload names another thread or run than the record's key and header.
	AnomalyThread = "thread-mismatch"
	AnomalyRun    = "run-mismatch"
)

// Rules returns these anomalies.
func Rules() []string {
	return []string{
		AnomalyMalformed, AnomalyLateInput, AnomalyInputReplaced, AnomalyRepeat, AnomalyBackwards, AnomalyGap, AnomalyIncomplete, AnomalyThread,
		AnomalyRun,
	}
}
