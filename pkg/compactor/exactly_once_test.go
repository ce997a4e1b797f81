package compactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/parts/partstest"
)

// Each test of this file stands for one line of the compactor that exactly-once rests on, and fails
// without it: docs/failure-model.md has the table.

// outcome is how many transactions of a member had an outcome.
func (m *member) outcome(o cycleOutcome) float64 {
	return testutil.ToFloat64(m.metrics.transactions.WithLabelValues(string(o)))
}

// A process that stops has its threads wait for no snapshot, and holds back no committed offset for one.
func TestService_AStopWritesTheSnapshotsThatAwaitTheirTime(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.join("a", w.TempDir(), nil)
		m.waitWorks()
		w.script.Turn("r1", "m1")
		w.publish()
		snapshots := func() int { return len(kafkatest.Consume(w.T, w.kafka, w.kafka.Topics().Snapshots)) }
		equal(w.T, "C while it runs", w.decided()[0], int64(2))
		equal(w.T, "snapshots", snapshots(), 0)
		if err := m.stop(); err != nil {
			w.Error(err)
		}
		equal(w.T, "C", w.decided()[0], int64(3))
		equal(w.T, "snapshots of messages and state", snapshots(), 2)
	})
}

// The transaction that holds an ended run's record is aborted: the run is folded and written again.
func TestService_AnAbortAfterAnEndedRunLosesNothing(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		m := w.join("a", w.TempDir(), nil)
		m.waitWorks()
		w.script.Turn("r1", "m1")
		m.refuse(kmsg.TxnOffsetCommit, kerr.IllegalGeneration)
		w.publish()
		w.decided()
		w.script.Turn("r2", "m2")
		w.publish()
		w.decided()
		w.isTheFold()
		equal(t, "transactions of unknown outcome", m.outcome(cycleUnknown), 1)
		equal(t, "sessions", testutil.ToFloat64(m.metrics.sessions), 1)
	})
}

// The broker has committed, and the client cannot tell: what is committed is asked for, and waited for
// until it is stable, and the store learns of what it was not told.
func TestService_AnEndOfUnknownOutcomeIsAskedFor(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		m := w.join("a", w.TempDir(), nil)
		m.waitWorks()
		var asked, unstable atomic.Int64
		w.cluster.Fake.ControlKey(int16(kmsg.OffsetFetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.Fake.KeepControl()
			asked.Add(1)
			if !r.(*kmsg.OffsetFetchRequest).RequireStable {
				unstable.Add(1)
			}
			return nil, nil, false
		})
		next := m.wire.Sent()[kmsg.EndTxn]
		m.wire.Decide(func(r kafkatest.Request) kafkatest.Fate {
			switch {
			case r.Key == kmsg.EndTxn && r.At == next: // committed, and nobody learns of it
				return kafkatest.CutAfter
			case r.Key == kmsg.EndTxn && r.At == next+1: // asked again, the broker does not know either
				w.refuse(kmsg.EndTxn, kerr.UnknownServerError)
			}
			return kafkatest.Deliver
		})
		w.script.Turn("r1", "m1")
		w.script.Send("t", "", custom("nobody's"))
		w.publish()
		w.decided()
		waitFor(t, "the outcome is not known", func() bool { return m.outcome(cycleUnknown) == 1 })
		m.waitWorks()
		w.script.Turn("r2", "m2") // its parent is in the store, or nowhere
		w.publish()
		w.decided()
		w.isTheFold()
		if asked.Load() == 0 || unstable.Load() > 0 {
			t.Errorf("committed offsets were asked for %d times, %d of them not caring for pending ones", asked.Load(), unstable.Load())
		}
	})
}

// A process that the group has given up, and that does not know: its heartbeats are answered, but not
// heard. Its timer writes an open run's record, without a new event, after another has the partition.
func TestService_AZombiesTimerWritesNothing(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		change := func(c *Config) { c.CheckpointInterval, c.CheckpointFactor = 20*time.Second, 0 }
		a := w.join("a", w.TempDir(), change)
		a.waitWorks()
		w.script.Send("u", "open", started("open"))
		w.script.Send("u", "open", text("m", "one "))
		w.publish()
		w.decided()
		w.cluster.Fake.ControlKey(int16(kmsg.Heartbeat), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.Fake.KeepControl()
			// Answered, and not heard by the group.
			return r.ResponseKind(), nil, strings.HasSuffix(*r.(*kmsg.HeartbeatRequest).InstanceID, "-a")
		})
		b := w.join("b", w.TempDir(), nil)
		b.waitWorks()
		equal(t, "the first one thinks that it works", a.works(), true)
		before := a.wire.Sent()[kmsg.TxnOffsetCommit]
		waitFor(t, "the zombie has tried", func() bool { return a.wire.Sent()[kmsg.TxnOffsetCommit] > before })
		w.script.Send("u", "open", text("m", "two"))
		w.script.Send("u", "open", finished("open"))
		w.publish()
		w.decided()
		w.isTheFold()
		for _, r := range records(t, w.runs()) {
			if r.Status == record.StatusRunning && r.Raw.Events > 0 { // it was announced before
				t.Errorf("the zombie has written a record of %s", r.RunID)
			}
		}
		equal(t, "transactions of the zombie", a.outcome(cycleCommitted), 2) // its fence and its first events
	})
}

// The markers of what a former owner has committed are not on skein.runs yet: to readers its records
// are not there. The new owner waits for its own fence, behind them.
func TestService_OpensBehindDelayedMarkers(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		a := w.join("a", w.TempDir(), nil)
		a.waitWorks()
		// As if a marker were still to come, a transaction that is open holds back all that follows it.
		held := w.holdRuns(0)
		w.script.Turn("r1", "m1")
		w.publish()
		w.decided()
		equal(t, "records that readers see", len(records(t, w.runs())), 0)
		a.kill()
		b := w.join("b", w.TempDir(), nil)
		w.script.Turn("r2", "m2")
		w.publish()
		time.Sleep(20 * time.Second)
		equal(t, "it works while markers are missing", b.works(), false)
		held()
		b.waitWorks()
		w.decided()
		w.isTheFold()
		equal(t, "parent", w.sealed()["t/r2"].ParentRunID, "r1")
	})
}

// holdRuns has a transaction of somebody else begin on a partition of skein.runs, and returns what aborts it.
func (w *world) holdRuns(partition int32) (release func()) {
	w.Helper()
	cfg := w.kafka
	cfg.Options = func() []kgo.Opt {
		return append(w.kafka.Options(), kgo.TransactionalID(fmt.Sprint("markers", partition)), kgo.TransactionTimeout(5*time.Minute))
	}
	cl, err := kafka.NewProducer(cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(cl.Close)
	ctx := context.Background()
	if err := cl.BeginTransaction(); err != nil {
		w.Fatal(err)
	}
	fence := &kgo.Record{Topic: w.kafka.Topics().Runs, Partition: partition, Key: []byte(record.FenceKey),
		Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: record.KindFence, Seq: -1})}
	if err := cl.ProduceSync(ctx, fence).FirstErr(); err != nil {
		w.Fatal(err)
	}
	return func() {
		w.Helper()
		if err := cl.EndTransaction(ctx, kgo.TryAbort); err != nil {
			w.Fatal(err)
		}
	}
}

// Poison lies between the committed offset, held by an open run, and the processed one; then the process is killed, twice. The next one
// reads it again, and decides nothing about it again.
func TestService_PoisonBelowTheProcessedOffsetIsOneDeadLetter(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		m := w.join("a", w.TempDir(), nil)
		w.script.Send("u", "open", started("open"))
		w.script.Send("u", "open", "poison")
		w.script.Send("t", "r", finished("other"))
		w.script.Send("u", "open", text("m", "one"))
		w.publish()
		equal(t, "C", w.decided()[0], int64(0))
		for range 2 {
			m.kill()
			m = w.join("a", w.TempDir(), nil)
			m.waitWorks()
			w.script.Send("u", "open", text("m", "more"))
			w.publish()
			equal(t, "C", w.decided()[0], int64(0))
		}
		w.script.Send("u", "open", finished("open"))
		w.publish()
		w.decided()
		w.isTheFold()
	})
}

// A process dies between its offsets and the end of its transaction. Taking the producer id as soon as
// it is back aborts that: else nothing is stable until the transaction times out, and nothing opens.
func TestService_OpensAtOnceAfterDyingInATransaction(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		dir := w.TempDir()
		m := w.join("a", dir, nil)
		m.waitWorks()
		m.wire.Decide(func(r kafkatest.Request) kafkatest.Fate {
			if r.Key == kmsg.EndTxn {
				return kafkatest.DownBefore
			}
			return kafkatest.Deliver
		})
		w.script.Turn("r1", "m1")
		w.publish()
		<-m.wire.Dead()
		m.kill()
		began := time.Now()
		m = w.join("a", dir, nil)
		m.waitWorks()
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("opening took %v, half of the transaction timeout is 4s", took)
		}
		w.decided()
		w.isTheFold()
	})
}

// While members come, the transactions of the one that is there wait for each join.
func TestService_NoTransactionIsLostToAJoin(t *testing.T) {
	inWorld(t, 4, func(w *world) {
		t := w.T
		a := w.join("a", w.TempDir(), nil)
		a.waitWorks()
		n := 0
		speak := func(until func() bool) {
			t.Helper()
			waitFor(t, "the group has settled", func() bool {
				for i := range 8 {
					thread := "t" + strconv.Itoa(i)
					w.script.Send(thread, "r"+strconv.Itoa(n), started("r"+strconv.Itoa(n)))
					w.script.Send(thread, "r"+strconv.Itoa(n), finished("r"+strconv.Itoa(n)))
				}
				n++
				w.publish()
				return until()
			})
		}
		speak(func() bool { return n > 20 })
		b := w.join("b", w.TempDir(), nil)
		speak(b.works)
		speak(func() bool { return a.works() && b.works() })
		w.decided()
		equal(t, "sealed runs", len(w.sealed()), 8*n)
		// One may begin at the very moment at which the broker begins the join; without the wait they go on without end.
		if n := a.outcome(cycleUnknown) + b.outcome(cycleUnknown); n > 1 {
			t.Errorf("%.0f transactions of unknown outcome", n)
		}
		equal(t, "transactions in error", a.outcome(cycleFailed)+b.outcome(cycleFailed), 0)
	})
}

// Two members come within one round, and the session hides the second revocation from its callback.
// What the client does not hold any more is dropped before the next transaction: else the timers of its
// runs would write on, and its committed offset with every other.
func TestService_DropsPartitionsThatLeaveWithoutAWord(t *testing.T) {
	hidden := 0
	for second := range 5 { // of the round, which takes 5
		t.Run(strconv.Itoa(second), func(t *testing.T) {
			inWorld(t, 6, func(w *world) {
				t := w.T
				a := w.join("a", w.TempDir(), func(c *Config) { c.CommitInterval = 5 * time.Second })
				a.waitWorks()
				for i := range 12 {
					w.script.Send("t"+strconv.Itoa(i), "r", started("r"))
					w.script.Send("t"+strconv.Itoa(i), "r", text("m", "one "))
				}
				w.publish()
				w.decided()
				time.Sleep(time.Duration(second) * time.Second)
				b := w.join("b", w.TempDir(), nil)
				waitFor(t, "the second has partitions", b.works)
				c := w.join("c", w.TempDir(), nil)
				waitFor(t, "all have partitions", func() bool { return a.works() && b.works() && c.works() })
				for i := range 12 {
					w.script.Send("t"+strconv.Itoa(i), "r", text("m", "two"))
					w.script.Send("t"+strconv.Itoa(i), "r", finished("r"))
				}
				w.publish()
				w.decided()
				time.Sleep(time.Minute) // whoever still has an open run writes it
				sealed := w.sealed()
				equal(t, "sealed runs", len(sealed), 12)
				for id, r := range sealed {
					equal(t, "message of "+id, string(r.Messages[0].Raw), assistantMessage("m", "one two"))
				}
				hidden += strings.Count(a.log.String(), "partition left without a callback")
			})
		})
	}
	if hidden == 0 {
		t.Error("no revocation was hidden: the test shows nothing")
	}
}

// misplaced writes events of so many bytes to another partition than the set of so many has for their key: where one partition
// more would have them.
func (w *world) misplaced(n, size int) {
	w.Helper()
	var out []*kgo.Record
	for i := 0; len(out) < n; i++ {
		key := fmt.Sprint("acme/m", i)
		at := record.Partition([]byte(key), w.partitions+1)
		if at == w.partitions || at == record.Partition([]byte(key), w.partitions) {
			continue
		}
		out = append(out, &kgo.Record{
			Topic: w.kafka.Topics().Events, Partition: at, Key: []byte(key), Value: make([]byte, size),
			Headers: kafka.Headers(record.Headers{Kind: record.KindEvent, RunID: "r", Seq: -1}),
		})
	}
	kafkatest.Produce(w.T, w.kafka, out...)
}

// letters are how many records were sent to dead letters.
func (w *world) letters() int {
	w.Helper()
	return len(kafkatest.Consume(w.T, w.kafka, w.kafka.Topics().DeadLetters))
}

// Producers learn of partitions that were added, and write by them, before this process looks for them in its own time: it
// asks before it sends what they write to dead letters, and commits nothing while brokers do not answer that.
func TestService_StopsBeforeItRefusesWhatIsOnAPartitionOfMore(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for _, added := range []bool{true, false} {
			t.Run(fmt.Sprintf("brokers are silent %t, partitions added %t", silent, added), func(t *testing.T) {
				inWorld(t, 2, func(w *world) {
					t := w.T
					m := w.join("a", w.TempDir(), nil)
					m.waitWorks()
					w.script.Turn("r1", "m1")
					w.script.Send("t", "", custom("nobody's")) // the producer knows the topic of dead letters from now on
					w.publish()
					w.decided()
					time.Sleep(2 * time.Second)
					if added {
						if _, err := w.admin().CreatePartitions(t.Context(), 1, w.kafka.Topics().All()...); err != nil {
							t.Fatal(err)
						}
					}
					if silent {
						m.wire.Decide(func(r kafkatest.Request) kafkatest.Fate {
							if r.Key == kmsg.Metadata {
								return kafkatest.CutBefore
							}
							return kafkatest.Deliver
						})
					}
					w.misplaced(3, 10)
					if silent {
						time.Sleep(20 * time.Second)
						equal(t, "dead letters while the brokers are silent", w.letters(), 1)
						equal(t, "how often it says what it waits for", strings.Count(m.log.String(), "nothing is committed until they do"), 1)
						m.wire.Decide(nil)
					}
					time.Sleep(10 * time.Second)
					equal(t, "it has stopped", errors.Is(m.stop(), kafka.ErrPartitionCounts), added)
					want := 4
					if added {
						want = 1
					}
					equal(t, "dead letters", w.letters(), want)
				})
			})
		}
	}
}

// Where brokers do not say how many partitions there are, what waits for that does not grow for ever: the session ends, and is
// not ready, and the next one begins once they say.
func TestService_EndsASessionThatWaitsLongForPartitionCounts(t *testing.T) {
	for name, fate := range map[string]kafkatest.Fate{"cut": kafkatest.CutBefore, "silent": kafkatest.Hang} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 2, func(w *world) {
				t := w.T
				m := w.join("a", w.TempDir(), nil)
				m.waitWorks()
				w.script.Turn("r1", "m1")
				w.script.Send("t", "", custom("nobody's")) // the producer knows the topic of dead letters from now on
				w.script.Send("open", "r2", started("r2"))
				w.publish()
				w.decided()
				time.Sleep(2 * time.Second)
				m.wire.Decide(func(r kafkatest.Request) kafkatest.Fate {
					if r.Key == kmsg.Metadata {
						return fate
					}
					return kafkatest.Deliver
				})
				w.misplaced(1, 10)
				w.script.Send("open", "r2", text("m2", "one"))
				w.publish()
				time.Sleep(misplacedWait - time.Second)
				equal(t, "it is ready while it waits", m.ready(), nil)
				time.Sleep(5 * time.Second) // a try, and the rest of a round
				equal(t, "it is ready after that", m.ready() == nil, false)
				equal(t, "how often the log says why", strings.Count(m.log.String(), "brokers have not said how many there are"), 1)
				time.Sleep(10 * time.Minute)
				equal(t, "it is ready later", m.ready() == nil, false)
				equal(t, "runs in memory", testutil.ToFloat64(m.metrics.openRuns), 0)
				equal(t, "a session is up", m.service.current.Load() != nil, false)
				equal(t, "dead letters", w.letters(), 1)
				m.wire.Decide(nil)
				m.waitWorks()
				w.decided()
				equal(t, "it is ready again", m.ready(), nil)
				equal(t, "dead letters once they say", w.letters(), 2)
			})
		})
	}
}

// A producer with another partitioner costs the others no more than some of their transactions.
func TestService_CommitsBesideAProducerOfTheWrongPartition(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		t := w.T
		m := w.join("a", w.TempDir(), func(c *Config) { c.CommitInterval = 200 * time.Millisecond })
		m.waitWorks()
		before := m.wire.Sent()[kmsg.EndTxn]
		for i := range 100 {
			id := fmt.Sprint("r", i)
			w.script.Turn(id, "m"+id)
			w.publish()
			w.misplaced(1, 10)
			time.Sleep(100 * time.Millisecond)
		}
		if n := m.wire.Sent()[kmsg.EndTxn] - before; n < 25 { // it is 50 without
			t.Errorf("%d transactions in 10 s", n)
		}
	})
}

// What was sent early in a transaction that then has to wait is aborted with it, and accepted when it is sent again.
func TestService_SendsAgainWhatItSentTooEarly(t *testing.T) {
	inWorld(t, 4, func(w *world) {
		t := w.T
		m := w.join("a", w.TempDir(), func(c *Config) { c.CommitInterval = 250 * time.Millisecond })
		m.waitWorks()
		var aborts atomic.Int64
		w.cluster.Fake.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.Fake.KeepControl()
			if !r.(*kmsg.EndTxnRequest).Commit {
				aborts.Add(1)
			}
			return nil, nil, false
		})
		for i := range 30 {
			id := fmt.Sprint("r", i)
			w.script.Turn(id, "m"+id)
			w.publish()
			time.Sleep(60 * time.Millisecond)
			w.misplaced(1, 10)
			time.Sleep(97 * time.Millisecond)
		}
		w.decided()
		equal(t, "sealed runs", len(w.sealed()), 30)
		equal(t, "transactions with refused records", m.outcome(cycleAborted), 0)
		if aborts.Load() == 0 {
			t.Error("no transaction was aborted: the test shows nothing")
		}
	})
}

// The client gives an answer a second time for as long as it keeps it, which is from when it came: one that came late says
// nothing of partitions that were added since.
func TestService_TakesNoAnswerFromBeforePartitionsWereAdded(t *testing.T) {
	for after := 50 * time.Millisecond; after < 600*time.Millisecond; after += 50 * time.Millisecond {
		t.Run(after.String(), func(t *testing.T) {
			inWorld(t, 2, func(w *world) {
				t := w.T
				m := w.join("a", w.TempDir(), nil)
				m.waitWorks()
				w.misplaced(1, 10)
				w.decided()
				asked := make(chan struct{}, 1)
				m.wire.Decide(func(r kafkatest.Request) kafkatest.Fate {
					if r.Key == kmsg.Metadata {
						time.Sleep(200 * time.Millisecond)
						select {
						case asked <- struct{}{}:
						default:
						}
					}
					return kafkatest.Deliver
				})
				time.Sleep(time.Second)
				select { // what the client asked for itself
				case <-asked:
				default:
				}
				w.misplaced(1, 10)
				<-asked
				time.Sleep(after)
				if _, err := w.admin().CreatePartitions(t.Context(), 1, w.kafka.Topics().All()...); err != nil {
					t.Fatal(err)
				}
				w.misplaced(1, 10)
				time.Sleep(10 * time.Second)
				equal(t, "it has stopped", errors.Is(m.stop(), kafka.ErrPartitionCounts), true)
				equal(t, "dead letters", w.letters(), 2)
				time.Sleep(time.Second) // requests that are held back
			})
		})
	}
}

// Raw expires while no compactor runs: no silent reset.
func TestService_CountsRawThatExpiredWhileItWasDown(t *testing.T) {
	for name, aborted := range map[string]bool{"at once": false, "once more, as the transaction is aborted": true} {
		t.Run(name, func(t *testing.T) { inWorld(t, 1, func(w *world) { countsRawThatExpired(w, aborted) }) })
	}
}

func countsRawThatExpired(w *world, aborted bool) {
	t := w.T
	m := w.join("a", w.TempDir(), nil)
	w.script.Send("u", "open", started("open"))
	w.script.Send("u", "open", text("m", "one "))
	w.publish()
	w.decided()
	time.Sleep(m.cfg.CheckpointMax + time.Second)
	equal(t, "C", w.decided()[0], int64(2))
	m.kill()
	w.script.Send("u", "open", text("m", "gone"))
	w.script.Send("v", "within", started("within"))
	w.script.Send("u", "open", text("m", "two"))
	w.script.Send("v", "within", text("m", "two"))
	w.script.Send("v", "within", finished("within"))
	w.script.Send("u", "open", finished("open"))
	w.publish()
	var until kadm.Offsets
	until.Add(kadm.Offset{Topic: w.kafka.Topics().Events, Partition: 0, At: 4})
	if _, err := w.admin().DeleteRecords(context.Background(), until); err != nil {
		t.Fatal(err)
	}
	wire := w.cluster.Wire()
	if aborted { // the one behind its fence's, which skips what is gone
		var commits atomic.Int32
		wire.Decide(func(r kafkatest.Request) kafkatest.Fate {
			if r.Key == kmsg.TxnOffsetCommit && commits.Add(1) == 2 {
				w.refuse(kmsg.TxnOffsetCommit, kerr.IllegalGeneration)
			}
			return kafkatest.Deliver
		})
	}
	m = w.joinBy(wire, "a", w.TempDir(), nil)
	w.decided()
	open := w.sealed()["u/open"]
	if open == nil {
		t.Fatal("the run is not sealed")
	}
	equal(t, "mark", open.RawLost, true)
	equal(t, "message", string(open.Messages[0].Raw), assistantMessage("m", "one two"))
	equal(t, "mark of a run that began there", w.sealed()["v/within"].RawLost, true)
	equal(t, "lost offsets", testutil.ToFloat64(m.metrics.lostOffsets), 2)
	equal(t, "opened again", m.outcome(cycleUnknown) > 0, aborted)
}

// deleteGroup takes away what the group has committed, once it has no members any more.
func (w *world) deleteGroup() {
	w.Helper()
	time.Sleep(time.Minute)
	if _, err := w.admin().DeleteGroup(context.Background(), w.kafka.CompactorGroup()); err != nil {
		w.Fatal(err)
	}
}

// The group is deleted, or its offsets expire while no compactor runs, or a tool sets them back: skein.runs says what was
// committed with the last records, and nothing is decided twice. A run is open then that no record shows.
func TestService_GoesOnWhereTheGroupsOffsetsAreGone(t *testing.T) {
	for name, c := range map[string]struct {
		newFolder, reset, diesAtFence, rawGone bool
		metadata                               string
	}{
		"on its folder":                  {},
		"on a new folder":                {newFolder: true},
		"set back by a tool":             {newFolder: true, reset: true},
		"set back to an older commit":    {reset: true, metadata: record.Progress{Processed: 1, Partitions: 1}.Metadata()},
		"and it dies at its first fence": {newFolder: true, diesAtFence: true},
		"and raw is gone":                {rawGone: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				t := w.T
				dir := w.TempDir()
				m := w.join("a", dir, nil)
				m.waitWorks()
				w.script.Turn("r1", "m1")
				w.script.Send("v", "", custom("nobody's"))
				w.script.Send("u", "open", started("open"))
				w.script.Send("u", "open", text("m", "one "))
				w.script.Send("v", "", custom("nobody's"))
				w.publish()
				w.decided()
				w.quiet()
				equal(t, "C", w.decided()[0], int64(4))
				m.kill()
				w.deleteGroup()
				w.script.Send("u", "open", text("m", "two"))
				w.script.Send("u", "open", finished("open"))
				w.script.Turn("r2", "m2")
				w.publish()
				if c.reset {
					var back kadm.Offsets
					back.Add(kadm.Offset{Topic: w.kafka.Topics().Events, Partition: 0, At: 0, LeaderEpoch: -1, Metadata: c.metadata})
					if err := w.admin().CommitAllOffsets(context.Background(), w.kafka.CompactorGroup(), back); err != nil {
						t.Fatal(err)
					}
				}
				if c.rawGone {
					var until kadm.Offsets
					until.Add(kadm.Offset{Topic: w.kafka.Topics().Events, Partition: 0, At: 8})
					if _, err := w.admin().DeleteRecords(context.Background(), until); err != nil {
						t.Fatal(err)
					}
				}
				folder := func() string {
					if c.newFolder {
						dir = w.TempDir()
					}
					return dir
				}
				if c.diesAtFence {
					wire := w.cluster.Wire()
					wire.Decide(func(r kafkatest.Request) kafkatest.Fate {
						if r.Key == kmsg.EndTxn {
							return kafkatest.DownAfter
						}
						return kafkatest.Deliver
					})
					m = w.joinBy(wire, "a", folder(), nil)
					waitFor(t, "its fence is committed", func() bool { return wire.Sent()[kmsg.EndTxn] > 0 })
					m.kill()
					time.Sleep(time.Minute)
				}
				m = w.join("a", folder(), nil)
				w.decided()
				const says = "committed offsets of the group are gone, or were set back"
				equal(t, "it has said so", strings.Count(m.log.String(), says), 1)
				if c.rawGone {
					equal(t, "lost offsets", testutil.ToFloat64(m.metrics.lostOffsets), 4)
					equal(t, "dead letters", w.letters(), 2)
					return
				}
				w.isTheFold()
				equal(t, "lost offsets", testutil.ToFloat64(m.metrics.lostOffsets), 0)
				m.kill()
				time.Sleep(time.Minute)
				m = w.join("a", folder(), nil)
				m.waitWorks()
				equal(t, "it says so again", strings.Count(m.log.String(), says), 0)
				w.isTheFold()
			})
		})
	}
}

// Somebody sets the group's offset higher, to skip what a compactor cannot get over. That is obeyed, counted and said once, and runs
// that were open are marked: what they said there is missing.
func TestService_MarksOpenRunsWhereTheGroupsOffsetsWereSetHigher(t *testing.T) {
	for _, open := range []bool{true, false} {
		t.Run(fmt.Sprintf("a run is open %t", open), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				t := w.T
				dir := w.TempDir()
				m := w.join("a", dir, nil)
				w.script.Turn("r1", "m1")
				if open {
					w.script.Send("u", "open", started("open"))
					w.script.Send("u", "open", text("m", "one "))
				}
				w.publish()
				w.decided()
				time.Sleep(m.cfg.CheckpointMax + time.Second)
				at := int64(len(w.script.Events))
				equal(t, "C", w.decided()[0], at)
				m.kill()
				w.deleteGroup()
				w.script.Send("u", "open", text("m", "skipped "))
				w.script.Turn("skipped", "m2")
				w.publish()
				var higher kadm.Offsets
				higher.Add(kadm.Offset{Topic: w.kafka.Topics().Events, Partition: 0, At: at + 4, LeaderEpoch: -1})
				if err := w.admin().CommitAllOffsets(context.Background(), w.kafka.CompactorGroup(), higher); err != nil {
					t.Fatal(err)
				}
				const says = "committed offsets of the group were set higher"
				for i, lost := range []float64{4, 0} {
					m = w.join("a", dir, nil)
					m.waitWorks()
					time.Sleep(5 * time.Second)
					equal(t, fmt.Sprintf("lost offsets, life %d", i), testutil.ToFloat64(m.metrics.lostOffsets), lost)
					equal(t, "it has said so", strings.Count(m.log.String(), says), int(lost/4))
					m.kill()
					time.Sleep(time.Minute)
				}
				w.join("a", dir, nil)
				w.script.Send("u", "open", finished("open"))
				w.publish()
				w.decided()
				sealed := w.sealed()
				equal(t, "the run that was skipped is not there", sealed["t/skipped"] == nil, true)
				if open {
					equal(t, "mark", sealed["u/open"].RawLost, true)
					equal(t, "message", string(sealed["u/open"].Messages[0].Raw), assistantMessage("m", "one "))
				}
			})
		})
	}
}

// The partition count that positions belong to is pinned on skein.runs, too.
func TestService_StopsWherePartitionsWereAddedAndTheGroupIsGone(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.join("a", w.TempDir(), nil)
		w.script.Turn("r1", "m1")
		w.publish()
		w.decided()
		m.kill()
		w.deleteGroup()
		if _, err := w.admin().CreatePartitions(context.Background(), 1, w.kafka.Topics().All()...); err != nil {
			w.Fatal(err)
		}
		m = w.join("a", w.TempDir(), nil)
		waitFor(w.T, "it stops", func() bool { return strings.Contains(m.log.String(), "process ended") })
		const says = "the positions on skein.runs belong to 1 partitions, the topics have 2"
		if err := m.stop(); !errors.Is(err, kafka.ErrPartitionCounts) || !strings.Contains(err.Error(), says) {
			w.Errorf("it ended with %v", err)
		}
	})
}

// polling is a session with one open partition for each sim, which has polled nothing yet.
func polling(sims ...*sim) (*session, owned) {
	service := newService(DefaultConfig(), kafka.Config{}, slog.New(slog.DiscardHandler), newMetrics(prometheus.NewRegistry(), 0))
	service.now = func() time.Time { return sims[0].Now }
	s := service.newSession(nil, nil)
	own := owned{parts: map[int32]view{}}
	for i, sim := range sims {
		a := newAssignment(int32(i), sim.Now)
		a.part = sim.part
		own.parts[a.id] = view{assignment: a, phase: phaseOpen}
		s.backlog.stretches = append(s.backlog.stretches, &stretch{of: a})
	}
	return s, own
}

// letter sends what becomes a dead letter of a few bytes more.
func (s *sim) letter(size int) {
	s.Append(&kgo.Record{Topic: s.Topics.Events, Key: []byte("no key"), Value: make([]byte, size)})
}

// A poll may bring far more outputs than a transaction is to hold.
func TestSession_EndsARoundInTheMiddleOfAPoll(t *testing.T) {
	sims := []*sim{newSim(t, nil), newSim(t, nil), newSim(t, nil)}
	s, own := polling(sims...)
	const size = 1 << 20
	for i, sim := range sims {
		for range partition.MaxOutputBytes / size {
			sim.letter(size)
		}
		s.backlog.stretches[i].add(sim.Events)
	}
	rounds := 0
	for full := true; full; rounds++ {
		s.room = partition.NewRoom(1)
		err := s.process(own)
		full = s.room.Full()
		out := 0
		for _, sim := range sims {
			sim.check(err)
			e, err := sim.part.Collect(partition.Cycle{Now: sim.Now, LogEnd: -1, Room: partition.NewRoom(1)})
			sim.check(err)
			for _, o := range e.Outputs {
				if o.Record.Topic == sim.Topics.DeadLetters {
					out += len(o.Record.Key) + len(o.Record.Value)
				}
			}
			sim.committed(e)
		}
		if most := partition.MaxOutputBytes + (len(sims)+1)*size; full && out < partition.MaxOutputBytes || out > most {
			t.Errorf("full is %v with %d bytes of outputs, want %d to %d", full, out, partition.MaxOutputBytes, most)
		}
	}
	for _, sim := range sims {
		equal(t, "how far it is", sim.next(), int64(partition.MaxOutputBytes/size))
	}
	if len(s.backlog.stretches) > 0 || rounds < 3 {
		t.Errorf("%d are left after %d rounds", len(s.backlog.stretches), rounds)
	}
}

// What waits for an assignment that is past is nobody's.
func TestSession_DropsWhatWasPolledForAnotherAssignment(t *testing.T) {
	sim := newSim(t, nil)
	s, own := polling(sim)
	sim.letter(1)
	s.backlog.stretches[0].add(sim.Events)
	own.parts[0] = view{assignment: newAssignment(0, sim.Now), phase: phaseOpen}
	sim.check(s.process(own))
	equal(t, "what is left, and how far it is", []any{len(s.backlog.stretches), sim.next()}, []any{0, int64(0)})
}

// A partition that stops while it is paused leaves no empty stretch, with which no poll would wait for records.
func TestSession_KeepsNothingOfAPausedPartitionThatStops(t *testing.T) {
	sim := newSim(t, nil)
	s, own := polling(sim)
	s.backlog.group = groupOfNobody(t)
	sim.Append(&kgo.Record{Topic: sim.Topics.Events, Key: []byte("acme/t"), Headers: kafka.Headers(record.Headers{Version: 2, Seq: -1})})
	s.backlog.stretches[0].paused = true
	s.backlog.stretches[0].add(sim.Events)
	sim.check(s.process(own))
	equal(t, "what is left, and how far it is", []any{len(s.backlog.stretches), sim.next()}, []any{0, int64(0)})
	equal(t, "the partition stopped", s.metrics.stops.Has(0), true)
}

// While a partition starves, those that have records are paused; one that was, and has none left, is fetched again.
func TestBacklog_FetchesWhatHasNoRecordsWhileAnotherStarves(t *testing.T) {
	sims := []*sim{newSim(t, nil), newSim(t, nil)}
	s, own := polling(sims...)
	s.backlog.group = groupOfNobody(t)
	full, empty, starved := s.backlog.stretches[0], s.backlog.stretches[1], newAssignment(2, sims[0].Now)
	sims[0].letter(1)
	full.add(sims[0].Events)
	empty.paused, s.backlog.refused[starved.id] = true, sims[0].Now
	open := map[int32]*assignment{0: own.parts[0].assignment, 1: own.parts[1].assignment, 2: starved}
	equal(t, "one starves, paused are", []bool{s.backlog.pause(open, &s.members), full.paused, empty.paused}, []bool{true, true, false})
}

// groupOfNobody returns a member of a group that reaches no broker.
func groupOfNobody(t *testing.T) *kgo.GroupTransactSession {
	t.Helper()
	group, err := kgo.NewGroupTransactSession(kgo.TransactionalID("t"), kgo.ConsumerGroup("g")) //nolint:forbidigo // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(group.Close)
	return group
}

// tick has each look at the clock of a session's backlog take so long.
func (s *session) tick(took time.Duration) {
	var looks atomic.Int64
	began := s.now()
	s.backlog.now = func() time.Time { return began.Add(time.Duration(looks.Add(1)) * took) }
}

// A partition whose records are slow to fold has its time, and the main loop goes on with what it has and what the others have.
func TestSession_FoldsForATime(t *testing.T) {
	slow, quick := newSim(t, nil), newSim(t, nil)
	s, own := polling(slow, quick)
	s.tick(foldTime)
	for range 3 * foldRecords {
		slow.letter(1)
	}
	for range 2 {
		slow.letter(foldBytes)
	}
	quick.letter(1)
	s.backlog.stretches[0].add(slow.Events)
	s.backlog.stretches[1].add(quick.Events)
	for _, want := range []int64{foldRecords, 2 * foldRecords, 3 * foldRecords, 3*foldRecords + 1, 3*foldRecords + 2} {
		slow.check(s.process(own))
		equal(t, "the round is over, and how far both are", []any{s.room.Full(), slow.next(), quick.next()}, []any{false, want, int64(1)})
	}
	equal(t, "what is left", len(s.backlog.stretches), 0)
}

// A partition that finds the room full comes first the next time, whatever the others have left.
func TestSession_TakesTurnsWhereTheRoomIsFull(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one partition after another
	sims := []*sim{newSim(t, nil), newSim(t, nil), newSim(t, nil)}
	s, own := polling(sims...)
	for i, sim := range sims {
		for n := range 3 * foldRecords {
			sim.Send("t", fmt.Sprint("r", n), started(fmt.Sprint("r", n)))
		}
		s.backlog.stretches[i].add(sim.Events)
	}
	for round := range 9 {
		s.room = partition.NewRoom(len(sims))
		s.room.LimitMemory(1) // any run fills it
		sims[0].check(s.process(own))
		for i, sim := range sims {
			if want := foldRecords * (int64(round+len(sims)-i) / int64(len(sims))); sim.next() != want {
				t.Errorf("after round %d partition %d is at %d, want %d", round, i, sim.next(), want)
			}
		}
	}
	equal(t, "what is left", len(s.backlog.stretches), 0)
}

// An answer of a broker has room for a few large records and for nothing behind them. A partition without any does not wait until those
// of the others are all processed.
func TestService_APartitionIsFetchedBesideLargeRecordsOfAnother(t *testing.T) {
	partstest.SkipShort(t, "time for tests of scale")
	inWorld(t, 3, func(w *world) {
		const large, quick = 12, 0
		threadOn := func(partition int32) string {
			for i := 0; ; i++ {
				if id := fmt.Sprint("t", len(w.script.Events), "-", i); record.Partition([]byte("acme/"+id), 3) == partition {
					return id
				}
			}
		}
		for i := range int32(large) {
			id := threadOn((quick + 1 + i%2) % 3)
			w.script.Send(id, "r", text("m", strings.Repeat("x", 14<<20)))
		}
		id := threadOn(quick)
		w.script.Send(id, "r", text("m", strings.Repeat("y", 4<<10))) // compressed, so that it may be refused room
		w.script.Send(id, "r", finished("r"))
		cfg := w.kafka
		cfg.Options = func() []kgo.Opt {
			return append(w.kafka.Options(), kgo.ProducerBatchCompression(kgo.GzipCompression()))
		}
		producer, err := kafka.NewProducer(cfg)
		if err != nil {
			w.Fatal(err)
		}
		defer producer.Close()
		for _, m := range w.script.Events { // each a batch
			sent := &kgo.Record{Topic: m.Topic, Partition: record.Partition(m.Key, 3), Key: m.Key, Value: m.Value, Headers: m.Headers}
			if err := producer.ProduceSync(w.Context(), sent).FirstErr(); err != nil {
				w.Fatal(err)
			}
		}
		var transactions, before atomic.Int32
		w.cluster.Fake.ControlKey(int16(kmsg.TxnOffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.Fake.KeepControl()
			n := transactions.Add(1)
			for _, topic := range r.(*kmsg.TxnOffsetCommitRequest).Topics {
				for _, p := range topic.Partitions {
					if at, err := partition.ParseProgress(p.Offset, *p.Metadata, 3); err == nil && p.Partition == quick && at.Processed == 2 {
						before.CompareAndSwap(0, n)
					}
				}
			}
			return nil, nil, false
		})
		w.join("a", w.TempDir(), func(c *Config) { c.OpenRunBytes = 1 << 20 }) // one of them fills a transaction
		w.decided()
		if n := before.Load(); n == 0 || n > large/3 {
			w.Errorf("the run was committed by transaction %d of %d", n, transactions.Load())
		}
	})
}
