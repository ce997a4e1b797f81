package partition

import (
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// AnomalyRules returns the rules of the anomalies that are counted, for the metric.
func AnomalyRules() []string {
	return append(fold.Rules(), lineage.AnomalySelfParent, lineage.AnomalyParentCycle, lineage.AnomalyPlacedAlone)
}

// The outcomes of records of skein.events in addition to those of package fold, for the metric.
const (
	outcomeDropped    fold.Outcome = "dropped"
	outcomeDeadLetter fold.Outcome = "dead-letter"
	// outcomeDiffers is the last event of a run that was sent again, with other bytes than the run has; it is dropped, too.
	outcomeDiffers fold.Outcome = "repetition-differs"
	// outcomeErasure is a request that erased a thread, outcomeErased a record that an erasure deleted.
	outcomeErasure fold.Outcome = "erasure"
	outcomeErased  fold.Outcome = "erased"
	// outcomeCancel is a request to stop a run, which the compactor ignores.
	outcomeCancel fold.Outcome = "cancel"
	// outcomeClaim is a claim of a run to its thread, which the compactor ignores.
	outcomeClaim fold.Outcome = "claim"
	// outcomeDetails is a patch of a thread's details.
	outcomeDetails fold.Outcome = "thread"
)

// Outcomes returns the outcomes of records of skein.events, for the metric; Counts counts them.
func Outcomes() []string {
	return []string{
		string(fold.Folded), string(fold.Input), string(outcomeDropped), string(outcomeDeadLetter), string(fold.LateError),
		string(fold.SecondTerminal), string(outcomeErasure), string(outcomeErased), string(outcomeCancel), string(outcomeClaim),
		string(outcomeDetails), string(outcomeDiffers),
	}
}

// codeAbandoned is the code of the synthetic RUN_ERROR of an expired run.
const codeAbandoned = "skein-abandoned"

// codeOutgrown is the code of the RUN_ERROR that ends a run whose input alone exceeds the record limit, before its first event.
const codeOutgrown = "skein-outgrown"

// codeOverQuota is the code of the RUN_ERROR that ends a run because its tenant has too many open ones.
const codeOverQuota = "skein-open-runs"

// Counts are figures of the records since the last commit, for metrics.
type Counts struct {
	Folded      int                  // events with the outcome fold.Folded
	Outcomes    map[fold.Outcome]int // records with other outcomes
	DeadLetters map[string]int
	Anomalies   map[string]int
	Ended       map[record.Status]int
	Reads       map[string]runstore.Reads // of the local store, by kind
	Bytes       int
	Lost        int64 // offsets that were gone before they were read
}

func newCounts() Counts {
	return Counts{
		Outcomes: map[fold.Outcome]int{}, DeadLetters: map[string]int{}, Anomalies: map[string]int{}, Ended: map[record.Status]int{},
	}
}
