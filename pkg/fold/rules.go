package fold

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
