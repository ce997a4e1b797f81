package fold

// The anomalies in the sequence of a run's records; packages compact and lineage have their own.
const (
	// AnomalyMalformed: an event of the run is malformed; it is not folded.
	AnomalyMalformed = "malformed"
	// AnomalyLateInput: an input came after the run's first event; it changes nothing.
	AnomalyLateInput = "input-after-start"
	// AnomalyInputReplaced: a second, different input came before the first event; the last one counts.
	AnomalyInputReplaced = "input-replaced"
	// AnomalyRepeat: an event's seq was seen before; it is dropped.
	AnomalyRepeat = "repeated-seq"
	// AnomalyBackwards: an event's seq is below one that was seen, and is new; it is dropped, too.
	AnomalyBackwards = "seq-backwards"
	// AnomalyGap: a seq is missing; the others are folded.
	AnomalyGap = "seq-gap"
	// AnomalyIncomplete: Skein's proxy left out records of the run; the others are folded.
	AnomalyIncomplete = "incomplete"
	// AnomalyThread and AnomalyRun: the payload names another thread or run than key and header.
	AnomalyThread = "thread-mismatch"
	AnomalyRun    = "run-mismatch"
)

// Rules are these anomalies.
func Rules() []string {
	return []string{
		AnomalyMalformed, AnomalyLateInput, AnomalyInputReplaced, AnomalyRepeat, AnomalyBackwards, AnomalyGap, AnomalyIncomplete, AnomalyThread,
		AnomalyRun,
	}
}
