package compactor

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// The lag is what scales the stage: it has to rise while nothing can be committed, through transactions
// that are aborted and partitions that are opened again, and to be 0 once everything is.
func TestService_LagRisesWhileNothingIsCommitted(t *testing.T) {
	c := kafkatest.StartCluster(t, 1)
	service, stop := runService(t, c.Config, testConfig(t.TempDir(), "a"))
	soon := func(what string, is func() bool) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ; !is(); <-tick.C {
			if time.Now().After(deadline) {
				t.Fatalf("waited a minute for this: %s; the lag is %v s", what, service.metrics.lag.Seconds())
			}
		}
	}
	s := newSim(t, nil)
	s.Turn("r1", "m1")
	produce(t, c.Config, 1, s.Events...)
	waitSealed(t, c.Config, 1)
	soon("the end", func() bool { return service.metrics.lag.Seconds() == 0 })

	refusing := c.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Err: kerr.InvalidCommitOffsetSize, Count: -1})
	s.Events = nil
	s.Turn("r2", "m2")
	produce(t, c.Config, 1, s.Events...)
	for n := range 3 {
		before := service.metrics.lag.Seconds()
		soon("another commit is refused", func() bool { return refusing.Hits() > n })
		soon("the lag rises", func() bool { return service.metrics.lag.Seconds() > before })
	}
	refusing.Remove()
	waitSealed(t, c.Config, 2)
	soon("the end again", func() bool { return service.metrics.lag.Seconds() == 0 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
