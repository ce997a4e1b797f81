package migrate_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/migrate"
	"github.com/skeinhq/skein/pkg/record"
)

// erase erases a thread in the place of ingest and compactor, with the records of some of its runs.
func (s *topicSet) erase(thread string, runs ...*kgo.Record) {
	s.Helper()
	e := s.event(thread)
	e.Headers = kafka.Headers(record.Headers{Kind: record.KindErase, Seq: -1})
	kafkatest.Produce(s.T, s.cfg, e)
	if len(runs) == 0 {
		return
	}
	var records []*kgo.Record
	for _, r := range runs {
		records = append(records, &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Headers: r.Headers})
	}
	kafkatest.Produce(s.T, s.cfg, append(records, &kgo.Record{
		Topic: s.cfg.Topics().Runs, Partition: e.Partition, Key: e.Key, Value: record.EncodeErased(e.Offset + 1),
		Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: record.KindErase, Seq: -1}),
	})...)
}

// letter is the dead letter of a raw event, or of one that lay there.
func (s *topicSet) letter(thread, reason string, at record.Position) *kgo.Record {
	return &kgo.Record{
		Topic: s.cfg.Topics().DeadLetters, Partition: at.Partition, Key: key(thread), Value: []byte(`{"type":"CUSTOM","name":"x","value":1}`),
		Headers: []kgo.RecordHeader{
			{Key: record.HeaderReason, Value: []byte(reason)}, {Key: record.HeaderPosition, Value: []byte(at.String())},
		},
	}
}

// transact writes records in a transaction that is then ended, and returns once its markers can be read.
func (s *topicSet) transact(how kgo.TransactionEndTry, records ...*kgo.Record) {
	s.Helper()
	cl := s.transaction()
	err := cl.ProduceSync(s.Context(), records...).FirstErr()
	if err == nil {
		err = cl.EndTransaction(s.Context(), how)
	}
	if err != nil {
		s.Fatal(err)
	}
	s.settled()
}

// settled waits until no transaction is open on raw events.
func (s *topicSet) settled() {
	s.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(kafkatest.Timeout); ; <-tick.C {
		open, err := kafka.Unsettled(s.Context(), s.adm, s.cfg.Topics().Events)
		if err != nil || time.Now().After(end) {
			s.Fatal(open, err)
		}
		if len(open) == 0 {
			return
		}
	}
}

// erasures are the threads of the new set's erasure records. Each leads to the copy of an erasure.
func (s *topicSet) erasures() []string {
	s.Helper()
	kinds := map[record.Position]record.Kind{}
	for _, m := range kafkatest.Consume(s.T, s.copied(), s.copied().Topics().Events) {
		h, err := record.ParseHeaders(m.Headers)
		if err != nil {
			s.Fatal(err)
		}
		kinds[record.Position{Partition: m.Partition, Offset: m.Offset}] = h.Kind
	}
	var out []string
	for _, m := range kafkatest.Consume(s.T, s.copied(), s.copied().Topics().Runs) {
		if h, err := record.ParseHeaders(m.Headers); err != nil || h.Kind != record.KindErase {
			continue
		}
		below, err := record.DecodeErased(m.Value)
		if at := (record.Position{Partition: m.Partition, Offset: below - 1}); err != nil || kinds[at] != record.KindErase {
			s.Errorf("the erasure of %s is at %v, where %q lies: %v", m.Key, at, kinds[at], err)
		}
		out = append(out, string(m.Key))
	}
	return out
}

// What comes while it copies, and is decided by compactors that are gone again when it looks, is not missed: a run,
// the erasure of another thread, and the retry of a dead letter.
func TestRun_MissesNothingThatCameWhileItCopied(t *testing.T) {
	for _, stage := range []string{"copying events", "copying runs", "copying deadLetters"} {
		t.Run(stage, func(t *testing.T) {
			kafkatest.OnBoth(t, 2, func(t *testing.T, cfg kafka.Config) { missesNothing(t, cfg, stage) })
		})
	}
}

func missesNothing(t *testing.T, cfg kafka.Config, stage string) {
	s := newTopicSetOn(t, cfg, 2)
	first, second := s.event("gone"), s.event("gone")
	kafkatest.Produce(t, s.cfg, s.event("t"), first, second)
	erased := s.run("gone", 0, first.Offset, second.Offset+1)
	letter := s.letter("t", deadletter.NoRun, record.Position{Partition: record.Partition(key("t"), 2)})
	kafkatest.Produce(t, s.cfg, erased, letter)
	s.decide()
	o, came := s.options(3), false
	o.Progress = func(what string, _, _ int) {
		if came || what != stage {
			return
		}
		came = true
		s.erase("gone", erased)
		a, b, retry := s.event("new"), s.event("new"), s.event("t")
		retry.Headers = []kgo.RecordHeader{{
			Key: record.HeaderRetryOf, Value: []byte(record.Position{Partition: letter.Partition, Offset: letter.Offset}.String()),
		}}
		kafkatest.Produce(t, s.cfg, a, b, retry)
		kafkatest.Produce(t, s.cfg, s.run("new", 1, a.Offset, b.Offset+1))
		s.decide()
	}
	if r := s.migrate(o); r.Done || r.Proof != nil || !strings.Contains(r.Waiting, "while it copied") || !came {
		t.Errorf("it says %+v", r)
	}
	if r := s.migrate(o); !r.Done || r.Proof.Runs != 1 || r.Proof.Erasures != 1 || r.Proof.Retried != 1 || r.Proof.DeadLetters != 0 {
		t.Fatalf("run again it says %+v, %+v", r, r.Proof)
	}
	last := map[string]*kgo.Record{}
	for _, m := range kafkatest.Consume(t, s.copied(), s.copied().Topics().Runs) {
		last[string(m.Key)] = m
	}
	if m := last["acme/gone/r0"]; m != nil && len(m.Value) > 0 {
		t.Error("the erased run is there")
	}
	if m := last["acme/new/r1"]; m == nil {
		t.Error("the new run is not there")
	} else if r, err := record.DecodeRun(m.Value); err != nil || r.Raw.First < s.start(m.Partition) || r.Raw.Next <= r.Raw.First {
		t.Errorf("the new run is %+v, %v", r, err)
	}
	if got := s.erasures(); !slices.Equal(got, []string{"acme/gone"}) {
		t.Errorf("erasures of %v", got)
	}
	if left := kafkatest.Consume(t, s.copied(), s.copied().Topics().DeadLetters); len(left) > 0 {
		t.Errorf("%d dead letters that were published again are there", len(left))
	}
}

// Only records of compactors came, between what was copied and its proof.
func TestRun_WaitsWhereRecordsCameWhileItCopied(t *testing.T) {
	s := newTopicSet(t, 2)
	kafkatest.Produce(t, s.cfg, s.event("t"), s.run("t", 0, 0, 1))
	s.decide()
	o, came := s.options(3), false
	o.Progress = func(what string, _, _ int) {
		if !came && what == "copying runs" {
			came = true
			kafkatest.Produce(t, s.cfg, s.run("t", 0, 0, 1))
		}
	}
	if r := s.migrate(o); r.Done || r.Proof != nil || !strings.Contains(r.Waiting, "was written to skein.runs while it copied") {
		t.Errorf("it says %+v", r)
	}
	if r := s.migrate(o); !r.Done || r.Copied["runs"] != 1 {
		t.Errorf("run again it says %+v", r)
	}
}

// Copies are as old as what they are copies of: by retention, brokers could delete them first.
func TestRun_KeepsAllThatItCopiesUntilItIsComplete(t *testing.T) {
	kafkatest.OnBoth(t, 2, func(t *testing.T, cfg kafka.Config) {
		s := newTopicSetOn(t, cfg, 2)
		if _, err := kafka.AlterTopics(t.Context(), cfg,
			kafka.TopicSpec{EventsRetention: 48 * time.Hour, DeadLettersRetention: 72 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		s.decide() // there is a group
		kafkatest.Produce(t, cfg, s.event("t"), s.run("t", 0, 0, 1))
		keeps := func(when string, events, letters time.Duration) {
			t.Helper()
			reports, err := kafka.CheckTopics(t.Context(), s.copied(), kafka.TopicSpec{EventsRetention: events, DeadLettersRetention: letters})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range reports {
				if len(r.Differences) > 0 {
					t.Errorf("%s: %s: %+v", when, r.Topic, r.Differences)
				}
			}
		}
		if r := s.migrate(s.options(3)); r.Done {
			t.Fatalf("it says %+v", r)
		}
		keeps("while it copies", -1, -1)
		s.decide()
		o := s.options(3)
		o.Spec.DeadLettersRetention = 96 * time.Hour
		if r := s.migrate(o); !r.Done {
			t.Fatalf("it says %+v", r)
		}
		keeps("complete", 48*time.Hour, 96*time.Hour)
		if r := s.migrate(s.options(3)); !r.Done {
			t.Fatalf("run again it says %+v", r)
		}
		keeps("run again", 48*time.Hour, 96*time.Hour)
	})
}

// A partition may end in what nobody reads: the marker of a transaction, and what was aborted.
func TestRun_TakesWhatCannotBeReadForCopied(t *testing.T) {
	s := newTopicSet(t, 2)
	other := "u0"
	for i := 1; record.Partition(key(other), 2) == record.Partition(key("t"), 2); i++ {
		other = "u" + strings.Repeat("0", i)
	}
	o := s.options(3)
	for _, add := range []func(){
		func() { s.transact(kgo.TryCommit, s.event("t")) },
		func() { s.transact(kgo.TryAbort, s.event("t"), s.event(other)) },
	} {
		add()
		if r := s.migrate(o); r.Done || !strings.Contains(r.Waiting, "have not decided") {
			t.Errorf("it says %+v", r)
		}
	}
	// All of it expires, and the first event that nobody has begun to copy a partition of.
	kafkatest.Produce(t, s.cfg, s.event(other))
	for p, end := range s.ends(s.cfg) {
		thread := map[bool]string{true: "t", false: other}[p == record.Partition(key("t"), 2)]
		s.expire(thread, end)
	}
	kafkatest.Produce(t, s.cfg, s.event("t"), s.event(other))
	s.transact(kgo.TryAbort, s.event("t"))
	s.decide()
	came := false
	o.Progress = func(what string, _, _ int) {
		if !came && what == "copying events" { // behind the end of what is copied
			came = true
			s.transact(kgo.TryAbort, s.event("t"))
			s.decide()
		}
	}
	if r := s.migrate(o); !r.Done || r.Copied["events"] != 2 || len(r.Proof.Differences) > 0 || !came {
		t.Errorf("it says %+v", r)
	}
}

// The proof sees an erasure that is not there, and a run that leads to another event.
func TestRun_ProvesErasuresAndWhereRunsLie(t *testing.T) {
	for name, spoil := range map[string]func(s *topicSet, events map[string][]*kgo.Record) *kgo.Record{
		"no erasure": func(s *topicSet, events map[string][]*kgo.Record) *kgo.Record {
			e := events["gone"][0]
			return &kgo.Record{
				Topic: s.copied().Topics().Runs, Partition: e.Partition, Key: e.Key,
				Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: record.KindErase, Seq: -1}),
			}
		},
		"another erasure": func(s *topicSet, events map[string][]*kgo.Record) *kgo.Record {
			e := events["gone"][0]
			return &kgo.Record{
				Topic: s.copied().Topics().Runs, Partition: e.Partition, Key: e.Key, Value: record.EncodeErased(e.Offset + 1),
				Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: record.KindErase, Seq: -1}),
			}
		},
		"another first event": func(s *topicSet, events map[string][]*kgo.Record) *kgo.Record {
			e := events["t"]
			other := *s
			other.cfg, other.partitions = s.copied(), 3
			return other.run("t", 0, e[0].Offset, e[2].Offset+1)
		},
		"another last event": func(s *topicSet, events map[string][]*kgo.Record) *kgo.Record {
			e := events["t"]
			other := *s
			other.cfg, other.partitions = s.copied(), 3
			return other.run("t", 0, e[1].Offset, e[1].Offset+1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTopicSet(t, 1)
			kafkatest.Produce(t, s.cfg, s.event("t"), s.event("t"), s.event("t"), s.event("gone"))
			run := s.run("t", 0, 1, 3)
			kafkatest.Produce(t, s.cfg, run, s.letter("other", deadletter.NoRun, record.Position{Offset: 0}))
			s.erase("gone", s.run("gone", 0, 3, 4))
			s.decide()
			o, spoilt := s.options(3), false
			o.Progress = func(what string, _, _ int) {
				if spoilt || what != "copying deadLetters" {
					return
				}
				spoilt = true
				events := map[string][]*kgo.Record{}
				for _, m := range kafkatest.Consume(t, s.copied(), s.copied().Topics().Events) {
					thread := strings.TrimPrefix(string(m.Key), "acme/")
					events[thread] = append(events[thread], m)
				}
				kafkatest.Produce(t, s.copied(), spoil(s, events))
			}
			if r := s.migrate(o); r.Done || r.Proof == nil || len(r.Proof.Differences) != 1 || !spoilt {
				t.Errorf("it says %+v, %+v", r, r.Proof)
			}
		})
	}
}

// An event that lies elsewhere than its thread would be refused by the new compactors.
func TestRun_ProvesThatEventsLieWithTheirThread(t *testing.T) {
	s := newTopicSet(t, 2)
	kafkatest.Produce(t, s.cfg, s.event("t"), s.run("t", 0, 0, 1))
	s.decide()
	o, spoilt := s.options(3), false
	o.Progress = func(what string, _, _ int) {
		if spoilt || what != "copying runs" {
			return
		}
		spoilt = true
		m := kafkatest.Consume(t, s.copied(), s.copied().Topics().Events)[0]
		m.Partition = (m.Partition + 1) % 3
		kafkatest.Produce(t, s.copied(), &kgo.Record{Topic: m.Topic, Partition: m.Partition, Key: m.Key, Value: m.Value, Headers: m.Headers})
	}
	r := s.migrate(o)
	isSaid := func(d string) bool { return strings.Contains(d, "is on partition") }
	if r.Done || r.Proof == nil || !slices.ContainsFunc(r.Proof.Differences, isSaid) {
		t.Errorf("it says %+v, %+v", r, r.Proof)
	}
}

// The dead letter of a thread that was erased behind it does not come back, but if the request to erase became a dead letter itself.
func TestRun_CopiesNoDeadLetterOfAnErasedThread(t *testing.T) {
	s := newTopicSet(t, 1)
	kafkatest.Produce(t, s.cfg, s.event("gone"), s.event("stays"))
	s.erase("gone")
	s.erase("stays")
	refused := s.letter("stays", deadletter.NotFromIngest, record.Position{Offset: 3})
	refused.Headers = append(refused.Headers, kgo.RecordHeader{Key: record.HeaderKind, Value: []byte(record.KindErase)})
	kafkatest.Produce(t, s.cfg, s.letter("gone", deadletter.NoRun, record.Position{Offset: 0}),
		s.letter("stays", deadletter.NoRun, record.Position{Offset: 1}), refused)
	s.decide()
	if r := s.migrate(s.options(3)); !r.Done || r.Proof.Erased != 1 || r.Proof.DeadLetters != 2 {
		t.Errorf("it says %+v, %+v", r, r.Proof)
	}
	left := kafkatest.Consume(t, s.copied(), s.copied().Topics().DeadLetters)
	if len(left) != 2 || string(left[0].Key) != "acme/stays" || string(left[1].Key) != "acme/stays" {
		t.Errorf("%d dead letters are there", len(left))
	}
}

// Kafka goes away before a copy is published, and comes back.
func TestRun_EndsWhereKafkaGoesAway(t *testing.T) {
	for _, fate := range []kafkatest.Fate{kafkatest.CutBefore, kafkatest.Hang} {
		t.Run(fmt.Sprint(fate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := kafkatest.StartCluster(t, 2, kafkatest.Virtual())
				adm := kafkatest.Admin(t, c.Config)
				s := &topicSet{t, c.Config, 2, adm}
				kafkatest.Produce(t, s.cfg, s.event("t"), s.event("t"), s.run("t", 0, 0, 2))
				s.decide()
				w := c.Wire()
				var away atomic.Bool // connections have goroutines of their own
				w.Decide(func(r kafkatest.Request) kafkatest.Fate {
					if r.Key == kmsg.Produce && r.At == 1 {
						away.Store(true)
					}
					if away.Load() {
						return fate
					}
					return kafkatest.Deliver
				})
				o := s.options(3)
				o.From = w.Config
				start := time.Now()
				if _, err := migrate.Run(t.Context(), o); !errors.Is(err, kafka.ErrUnacknowledged) {
					t.Errorf("it says %v", err)
				}
				if took := time.Since(start); took > time.Minute {
					t.Errorf("it took %v", took)
				}
				w.Decide(nil)
				if r := s.migrate(o); !r.Done || r.Proof.Events != 2 {
					t.Errorf("run again it says %+v", r)
				}
			})
		})
	}
}
