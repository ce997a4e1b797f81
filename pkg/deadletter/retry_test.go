package deadletter

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

const (
	partitions = 3
	event      = `{"type":"RAW"}`
)

// topics holds events and the dead letters of some of them, as the compactor writes them.
type topics struct {
	t   *testing.T
	cfg kafka.Config
}

func keyOf(t *testing.T, tenant, thread string) []byte {
	t.Helper()
	key, err := record.ThreadKey(tenant, thread)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(key)
}

// letter puts an event on its thread's partition and makes it a dead letter. With wrong it lies on another.
func (s *topics) letter(tenant, thread, reason, value string, wrong bool, more ...kgo.RecordHeader) record.Position {
	s.t.Helper()
	key := keyOf(s.t, tenant, thread)
	p := record.Partition(key, partitions)
	if wrong {
		p = (p + 1) % partitions
	}
	m := &kgo.Record{Topic: s.cfg.Topics().Events, Partition: p, Key: key, Value: []byte(value),
		Headers: append([]kgo.RecordHeader{{Key: "of-the-agent", Value: []byte("yes")}}, more...)}
	kafkatest.Produce(s.t, s.cfg, m)
	return s.dead(m, reason)
}

// dead makes an event a dead letter.
func (s *topics) dead(m *kgo.Record, reason string) record.Position {
	s.t.Helper()
	at := record.Position{Partition: m.Partition, Offset: m.Offset}
	dead := &kgo.Record{Topic: s.cfg.Topics().DeadLetters, Partition: m.Partition, Key: m.Key, Value: m.Value,
		Headers: append(m.Headers[:len(m.Headers):len(m.Headers)],
			kgo.RecordHeader{Key: record.HeaderReason, Value: []byte(reason)},
			kgo.RecordHeader{Key: record.HeaderPosition, Value: []byte(at.String())})}
	kafkatest.Produce(s.t, s.cfg, dead)
	return record.Position{Partition: dead.Partition, Offset: dead.Offset}
}

// retry runs and returns the outcomes by id.
func (s *topics) retry(r Retry) map[record.Position]Outcome {
	s.t.Helper()
	done, err := r.Run(s.t.Context(), s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	got := map[record.Position]Outcome{}
	for _, d := range done {
		got[d.ID] = d.Outcome
		if d.Tenant != r.Tenant {
			s.t.Errorf("of tenant %s: %+v", r.Tenant, d)
		}
		if d.Outcome == Published && (d.RetriedAt == nil) != r.DryRun {
			s.t.Errorf("published where? %+v", d)
		}
	}
	return got
}

// retries returns the records of skein.events that are retries.
func (s *topics) retries() []*kgo.Record {
	s.t.Helper()
	var out []*kgo.Record
	for _, m := range kafkatest.Consume(s.t, s.cfg, s.cfg.Topics().Events) {
		if retryOf(m) != nil {
			out = append(out, m)
		}
	}
	return out
}

// wantRetries waits until so many retries can be read: what was committed can be a moment later.
func (s *topics) wantRetries(n int) {
	s.t.Helper()
	for end := time.Now().Add(kafkatest.Timeout); ; time.Sleep(20 * time.Millisecond) {
		switch have := len(s.retries()); {
		case have == n:
			return
		case have > n || time.Now().After(end):
			s.t.Fatalf("%d retries, want %d", have, n)
		}
	}
}

func (s *topics) want(what string, got, want map[record.Position]Outcome) {
	s.t.Helper()
	if !maps.Equal(got, want) {
		s.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestRetry_PublishesWhatHasAChanceAndNothingTwice(t *testing.T) {
	kafkatest.OnBoth(t, partitions, publishesWhatHasAChance)
}

func publishesWhatHasAChance(t *testing.T, cfg kafka.Config) {
	s := &topics{t: t, cfg: cfg}
	noRun := s.letter("acme", "a", NoRun, event, false)
	wrong := s.letter("acme", "a", WrongPartition, event, true)
	late := s.letter("acme", "b", AfterTerminal, event, false)
	odd := s.letter("acme", "b", Malformed, `{"type":1}`, false)
	notJSON := s.letter("acme", "b", Malformed, `{`, false)
	gone := s.letter("acme", "gone", NoRun, event, false)
	erase := func(thread string) *kgo.Record {
		key := keyOf(t, "acme", thread)
		m := &kgo.Record{Topic: cfg.Topics().Events, Key: key, Partition: record.Partition(key, partitions),
			Headers: kafka.Headers(record.Headers{Kind: record.KindErase, Seq: -1})}
		kafkatest.Produce(t, cfg, m)
		return m
	}
	erase("gone")
	forged := s.dead(erase("a"), NotFromIngest) // which erases nothing
	other := s.letter("umbrella", "a", NoRun, event, false)
	// Of an event that was copied, skein-retry-of names a dead letter of another topic set.
	kafkatest.Produce(t, cfg, &kgo.Record{
		Topic: cfg.Topics().Events, Key: keyOf(t, "acme", "a"), Partition: record.Partition(keyOf(t, "acme", "a"), partitions),
		Value: []byte(event),
		Headers: []kgo.RecordHeader{{Key: record.HeaderRetryOf, Value: []byte(noRun.String())},
			{Key: record.HeaderCopiedFrom, Value: []byte("0:7")}},
	})
	all := Retry{Query: Query{Tenant: "acme"}}

	first := map[record.Position]Outcome{
		noRun: Published, wrong: Published, late: Hopeless, odd: Unchanged, notJSON: Hopeless, gone: Erased, forged: Unchanged,
	}
	dry := all
	dry.DryRun = true
	s.want("a dry run", s.retry(dry), first)
	if n := len(s.retries()); n != 0 {
		t.Errorf("a dry run published %d", n)
	}
	s.want("the first", s.retry(all), first)
	second := maps.Clone(first)
	second[noRun], second[wrong] = PublishedBefore, PublishedBefore
	s.want("the second", s.retry(all), second)

	s.wantRetries(2)
	retries := s.retries()
	for _, m := range retries {
		if string(m.Key) != "acme/a" || string(m.Value) != event || m.Partition != record.Partition(m.Key, partitions) || len(m.Headers) != 2 || m.Headers[0].Key != "of-the-agent" {
			t.Errorf("a retry is %+v", m)
		}
	}
	s.want("a named reason", s.retry(Retry{Query: Query{Tenant: "acme", Reason: Malformed}}),
		map[record.Position]Outcome{odd: Published, notJSON: Hopeless})
	s.want("a named id, and a stranger's", s.retry(Retry{Query: Query{Tenant: "acme", IDs: []record.Position{late, other}}}),
		map[record.Position]Outcome{late: Hopeless})

	// A retry that fails again.
	failed := s.dead(retries[0], NoRun)
	one := Retry{Query: Query{Tenant: "acme", IDs: []record.Position{failed}}}
	s.want("a retry of a retry", s.retry(one), map[record.Position]Outcome{failed: FailedBefore})
	one.Again = true
	s.want("again", s.retry(one), map[record.Position]Outcome{failed: Published})
	s.want("of another thread", s.retry(Retry{Query: Query{Tenant: "acme", Thread: "nowhere"}}), map[record.Position]Outcome{})
}

// The former one begins first and comes to its commit last.
func TestRetry_IsFencedByALaterOne(t *testing.T) {
	kafkatest.OnBoth(t, partitions, func(t *testing.T, cfg kafka.Config) {
		s := &topics{t: t, cfg: cfg}
		id := s.letter("acme", "a", NoRun, event, false)
		s.letter("acme", "a", AfterTerminal, event, false)
		all := Retry{Query: Query{Tenant: "acme", Reason: NoRun}}
		former := all
		former.Progress = func(int, int) {
			// The former has looked, and would publish.
			s.want("the later one", s.retry(all), map[record.Position]Outcome{id: Published})
		}
		if _, err := former.Run(t.Context(), cfg); !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
			t.Errorf("the former one: %v", err)
		}
		s.wantRetries(1)
	})
}

// Retention has taken what would say whether there was a retry.
func TestRetry_SaysWhenItCannotBeTold(t *testing.T) {
	cluster := kafkatest.StartCluster(t, partitions)
	s := &topics{t: t, cfg: cluster.Config}
	id := s.letter("acme", "a", NoRun, event, false)
	for range 3 {
		s.letter("acme", "a", AfterTerminal, event, false)
	}
	if err := cluster.Fake.DeleteRecords(cluster.Config.Topics().Events, id.Partition, 3); err != nil {
		t.Fatal(err)
	}
	one := Retry{Query: Query{Tenant: "acme", Reason: NoRun}}
	s.want("a log that is cut", s.retry(one), map[record.Position]Outcome{id: Untold})
	one.Again = true
	s.want("again", s.retry(one), map[record.Position]Outcome{id: Published})
}

func TestReadPage_GivesEachLetterOnceAndNobodyElses(t *testing.T) {
	s := &topics{t: t, cfg: kafkatest.Start(t, partitions)}
	want := map[record.Position]bool{}
	for i := range 7 {
		want[s.letter("acme", fmt.Sprint("t", i), NoRun, event, false)] = true
		s.letter("umbrella", fmt.Sprint("t", i), NoRun, event, false)
	}
	kafkatest.Produce(t, s.cfg, &kgo.Record{Topic: s.cfg.Topics().DeadLetters, Key: []byte("no key"),
		Headers: []kgo.RecordHeader{{Key: record.HeaderReason, Value: []byte(BadKey)}}})
	var after *record.Position
	for pages := 0; ; pages++ {
		page, err := ReadPage(t.Context(), s.cfg, Query{Tenant: "acme"}, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page.Records {
			if !want[l.ID] || l.Tenant != "acme" || !strings.HasPrefix(l.ThreadID, "t") || l.Position == nil || l.Chance != ChanceNow ||
				l.Bytes != len(event) {
				t.Errorf("not expected (any more): %+v", l)
			}
			delete(want, l.ID)
		}
		if page.Next == nil {
			break
		}
		if after = page.Next; pages > 10 {
			t.Fatal("pages do not end")
		}
	}
	if len(want) > 0 {
		t.Errorf("not given: %v", want)
	}
	for name, c := range map[string]struct {
		q    Query
		want int
	}{
		"everybody's":      {Query{AnyTenant: true}, 15},
		"nobody's":         {Query{AnyTenant: true, Reason: BadKey}, 1},
		"no tenant":        {Query{}, 0},
		"a thread":         {Query{Tenant: "acme", Thread: "t3"}, 1},
		"another's reason": {Query{Tenant: "acme", Reason: BadKey}, 0},
		"of the future":    {Query{Tenant: "acme", Since: time.Now().Add(time.Hour)}, 0},
		"of the past":      {Query{Tenant: "acme", Until: time.Now().Add(-time.Hour)}, 0},
		"of this hour":     {Query{Tenant: "acme", Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)}, 7},
	} {
		if page, err := ReadPage(t.Context(), s.cfg, c.q, nil, 100); err != nil || len(page.Records) != c.want {
			t.Errorf("%s: %d letters, %v; want %d", name, len(page.Records), err, c.want)
		}
	}
}
