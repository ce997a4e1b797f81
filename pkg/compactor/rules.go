package compactor

// The reasons of dead letters.
const (
	reasonMalformed      = "malformed"
	reasonNoRun          = "no-run"
	reasonAfterTerminal  = "after-terminal"
	reasonWrongPartition = "wrong-partition"
	// reasonTooLarge: the value is over the record limit.
	reasonTooLarge = "too-large"
	// reasonBadKey: the key is not tenant/thread, escaped as schemas/ describes.
	reasonBadKey = "bad-key"
	// reasonBadHeaders: a Skein header that cannot be read, such as a version of the future.
	reasonBadHeaders = "bad-headers"
	// reasonUnknownKind: a skein-kind that does not belong on skein.events.
	reasonUnknownKind = "unknown-kind"
)

func reasons() []string {
	return []string{reasonMalformed, reasonNoRun, reasonAfterTerminal, reasonWrongPartition, reasonTooLarge, reasonBadKey, reasonBadHeaders, reasonUnknownKind}
}

// The anomalies that the compactor counts; the fold and lineage have their own.
const (
	// ruleMalformed: an event of the run is not one; it is not folded.
	ruleMalformed = "malformed"
	// ruleLateInput: an input came after the run's first event; it changes nothing.
	ruleLateInput = "input-after-start"
	// ruleInputReplaced: a second, different input came before the first event; the last one counts.
	ruleInputReplaced = "input-replaced"
	// ruleRepeat: an event's seq was seen before; it is dropped.
	ruleRepeat = "repeated-seq"
	// ruleGap: a seq is missing; what came is folded.
	ruleGap = "seq-gap"
	// ruleThread and ruleRun: the payload names another thread or run than key and header.
	ruleThread = "thread-mismatch"
	ruleRun    = "run-mismatch"
)

func anomalyRules() []string {
	return []string{ruleMalformed, ruleLateInput, ruleInputReplaced, ruleRepeat, ruleGap, ruleThread, ruleRun}
}

// What became of a record of skein.events, for the metric.
const (
	outcomeFolded   = "folded"
	outcomeInput    = "input"
	outcomeDropped  = "dropped"
	outcomeLetter   = "dead_letter"
	outcomeTerminal = "second_terminal"
)

func outcomes() []string {
	return []string{outcomeFolded, outcomeInput, outcomeDropped, outcomeLetter, outcomeTerminal}
}

// codeAbandoned is the code of the RUN_ERROR that stands in for the end of a silent run.
const codeAbandoned = "skein-abandoned"
