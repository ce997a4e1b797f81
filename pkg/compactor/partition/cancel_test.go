package partition

import (
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/record"
)

// A request to stop a run is counted, and changes nothing: whoever holds the run ends it, or nobody does.
func TestPartition_LeavesARequestToStopARunToItsHolder(t *testing.T) {
	s := newSim(t, nil)
	s.SendKind(record.KindCancel, "t", "r", `{}`) // of a thread that there is not
	s.Send("t", "r", started("r"))
	s.SendKind(record.KindCancel, "t", "r", `{"reason":"stop"}`)
	s.SendKind(record.KindCancel, "t", "", `not even JSON`)
	s.SendKind(record.KindClaim, "t", "r", `{}`)
	s.open(false)
	s.feed(1)
	equal(t, "threads at hand", len(s.part.threads), 0)
	s.feed(4)
	equal(t, "counted", s.part.counts.Outcomes[outcomeCancel], 3)
	equal(t, "counted claims", s.part.counts.Outcomes[outcomeClaim], 1)
	s.commit(true)
	s.Send("t", "r", `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"cancelled"}}`, says(record.HeaderSynthetic, "true")...)
	s.SendKind(record.KindCancel, "t", "r", `{}`)
	s.all()
	r := s.run("r")
	equal(t, "run", []any{r.Status, r.Raw.Ranges, r.Stats.Anomalies},
		[]any{record.StatusCancelled, [][2]int64{{1, 2}, {5, 6}}, map[string]int64(nil)})
	equal(t, "dead letters", s.letters(), []string{})
	equal(t, "P", s.committed.Processed, int64(7))
	s.proves()
}

// It is no sign of life, nor is a claim.
func TestPartition_ARequestToStopARunDoesNotKeepItAlive(t *testing.T) {
	s := newSim(t, nil)
	s.Send("t", "r", started("r"))
	s.all()
	for range 4 {
		s.Now = s.Now.Add(s.cfg.IdleLimit / 3)
		s.SendKind(record.KindCancel, "t", "r", `{}`)
		s.SendKind(record.KindClaim, "t", "r", `{}`)
		s.all()
	}
	s.Now = s.Now.Add(time.Second)
	s.commit(true)
	equal(t, "status", s.run("r").Status, record.StatusAbandoned)
}
