package compactor

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// talk is runs, each in a thread of its own, that go on saying numbers for as long as a test likes.
type talk struct {
	sim        *sim
	k          kafka.Config
	partitions int32
	runs, said int
	sent       int
}

// startTalk starts the runs; nothing is sent yet.
func startTalk(t *testing.T, k kafka.Config, partitions int32, runs int) *talk {
	t.Helper()
	l := &talk{sim: newSim(t, nil), k: k, partitions: partitions, runs: runs}
	l.each(started("r"))
	return l
}

func (l *talk) each(event string) {
	for i := range l.runs {
		l.sim.Send(fmt.Sprintf("t%d", i), "r", event)
	}
}

// say lets each run say its next number, over and over, until done.
func (l *talk) say(t *testing.T, what string, done func() bool) {
	t.Helper()
	waitFor(t, what, func() bool {
		l.each(text("m", fmt.Sprint(l.said, " ")))
		l.said++
		l.send(t)
		return done()
	})
}

func (l *talk) send(t *testing.T) {
	t.Helper()
	produce(t, l.k, l.partitions, l.sim.Events[l.sent:]...)
	l.sent = len(l.sim.Events)
}

// end ends the runs and checks that each has one sealed record, with every number once and in order.
func (l *talk) end(t *testing.T) {
	t.Helper()
	l.each(finished("r"))
	l.send(t)
	var want strings.Builder
	for n := range l.said {
		fmt.Fprint(&want, n, " ")
	}
	sealed := waitSealed(t, l.k, l.runs)
	waitDecided(t, l.k, l.partitions)
	for id, r := range sealed {
		equal(t, "message of "+id, string(r.Messages[0].Raw), assistantMessage("m", want.String()))
		equal(t, "events of "+id, r.Raw.Events, int64(l.said)+2)
	}
	sealedOnce(t, kafkatest.Consume(t, l.k, l.k.Topics().Runs))
	equal(t, "dead letters", len(kafkatest.Consume(t, l.k, l.k.Topics().DeadLetters)), 0)
}

// open are the open partitions of a member, each with the assignment under which it was opened.
func open(s *Service) map[int32]*assignment {
	one := s.current.Load()
	if one == nil {
		return nil
	}
	return one.members.open()
}

// A second member comes while runs are open and events flow, and leaves again: nothing is lost or
// doubled. What the first one keeps stays open, unless the rebalance has cut a transaction of its off.
func TestService_LosesNothingWhileAnotherComesAndGoes(t *testing.T) {
	kafkatest.OnBoth(t, 4, losesNothingWhileAnotherComesAndGoes)
}

func losesNothingWhileAnotherComesAndGoes(t *testing.T, k kafka.Config) {
	l := startTalk(t, k, 4, 12)
	a, _ := runService(t, k, testConfig(t.TempDir(), "a"))
	l.say(t, "the first has all partitions", func() bool { return len(open(a)) == 4 })
	alone := open(a)
	b, stop := runService(t, k, testConfig(t.TempDir(), "b"))
	l.say(t, "they share", func() bool { return len(open(a)) == 2 && len(open(b)) == 2 })
	kept := open(a)
	for id := range open(b) {
		if kept[id] != nil {
			t.Errorf("both have partition %d", id)
		}
	}
	stayed := func(what string, before, after map[int32]*assignment) {
		t.Helper()
		cut := testutil.ToFloat64(a.metrics.transactions.WithLabelValues(string(cycleUnknown)))
		again := 0
		for id := range kept {
			if before[id] != after[id] {
				again++
			}
		}
		t.Logf("%s: %d of %d partitions that stayed were opened again, after %v transactions that were cut off", what, again, len(kept), cut)
		if again > 0 && cut == 0 {
			t.Errorf("%s: partitions that stayed were closed for no reason", what)
		}
	}
	stayed("another came", alone, kept)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	leave(t, k, "b")
	l.say(t, "the first has all partitions again", func() bool { return len(open(a)) == 4 })
	stayed("it left", kept, open(a))
	l.end(t)
	equal(t, "sessions of the first", testutil.ToFloat64(a.metrics.sessions), 1)
}

// A member that the group has thrown out, as one that was cut off for the session timeout, says so until it is
// in again.
func TestService_IsNotReadyWhileTheGroupHasThrownItOut(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.join("a", w.TempDir(), nil)
		m.waitWorks()
		in := make(chan struct{})
		letIn := sync.OnceFunc(func() { close(in) })
		defer letIn()
		m.wire.Decide(func(r kafkatest.Request) kafkatest.Fate {
			if r.Key == kmsg.JoinGroup {
				<-in
			}
			return kafkatest.Deliver
		})
		leave(w.T, w.kafka, "a")
		waitFor(w.T, "it says that the group has given it nothing", func() bool {
			err := m.ready()
			return err != nil && strings.Contains(err.Error(), "the group has not given out its partitions")
		})
		letIn()
		m.waitWorks()
		w.script.Turn("r1", "m1")
		w.publish()
		w.decided()
		w.isTheFold()
		if strings.Contains(m.log.String(), "process ended") {
			w.Error("the process has ended")
		}
	})
}
