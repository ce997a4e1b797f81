package replay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/replay"
)

// world is a topic set of three partitions with events of some threads, and a topic to replay to, of two.
type world struct {
	*testing.T
	cfg    kafka.Config
	target string
	begin  time.Time
	events []*kgo.Record
}

func newWorld(t *testing.T, cfg kafka.Config, settings map[string]*string) *world {
	t.Helper()
	adm := kafkatest.Admin(t, cfg)
	target := cfg.TopicPrefix + "for.tests"
	if _, err := adm.CreateTopic(t.Context(), 2, 1, settings, target); err != nil {
		t.Fatal(err)
	}
	return &world{T: t, cfg: cfg, target: target, begin: time.Now().Add(time.Minute).Truncate(time.Millisecond)}
}

// event writes an event of a thread, a second after the one before; it belongs to the run, where that is not empty.
func (w *world) event(tenant, thread, run, text string, more ...kgo.RecordHeader) *kgo.Record {
	w.Helper()
	headers := append(kafka.Headers(record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1,
		Labels: []record.Label{{Key: "user", Value: "ada"}}}), more...)
	return w.write(tenant, thread, headers, text)
}

// awaitMarker waits until a record can be read: a broker writes the marker of a transaction after it has answered.
func (w *world) awaitMarker(m *kgo.Record) {
	w.Helper()
	adm, err := kafka.NewAdmin(w.cfg)
	if err != nil {
		w.Fatal(err)
	}
	defer adm.Close()
	for deadline := time.Now().Add(kafkatest.Timeout); ; <-time.After(time.Millisecond) {
		ends, err := adm.ListCommittedOffsets(w.Context(), m.Topic)
		if err != nil {
			w.Fatal(err)
		}
		if end, ok := ends.Lookup(m.Topic, m.Partition); ok && end.Err == nil && end.Offset > m.Offset {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s cannot be read: the log ends before it", position(m))
		}
	}
}

func (w *world) write(tenant, thread string, headers []kgo.RecordHeader, value string) *kgo.Record {
	w.Helper()
	key, err := record.ThreadKey(tenant, thread)
	if err != nil {
		w.Fatal(err)
	}
	m := &kgo.Record{
		Topic: w.cfg.Topics().Events, Partition: record.Partition([]byte(key), 3), Key: []byte(key), Value: []byte(value), Headers: headers,
		Timestamp: w.begin.Add(time.Duration(len(w.events)) * time.Second),
	}
	// Kafka finds a time by batches, and the marker of a transaction is one, of now: events are younger here.
	cl, err := kafka.NewTransactor(w.Context(), w.cfg, "agents")
	if err != nil {
		w.Fatal(err)
	}
	defer cl.Close()
	if err := errors.Join(cl.BeginTransaction(), cl.ProduceSync(w.Context(), m).FirstErr(),
		cl.EndTransaction(w.Context(), kgo.TryCommit)); err != nil {
		w.Fatal(err)
	}
	w.awaitMarker(m)
	w.events = append(w.events, m)
	return m
}

func (w *world) plan(o replay.Options) *replay.Plan {
	w.Helper()
	o.To = w.target
	p, err := replay.NewPlan(w.Context(), w.cfg, o)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

func (w *world) run(p *replay.Plan) replay.Done {
	w.Helper()
	d, err := p.Run(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return d
}

// replayed is what lies on the target, as positions of the originals, in the order of those.
func (w *world) replayed() []string {
	w.Helper()
	var at []string
	for _, m := range kafkatest.Consume(w.T, w.cfg, w.target) {
		i := slices.IndexFunc(m.Headers, func(h kgo.RecordHeader) bool { return h.Key == replay.HeaderReplayedFrom })
		if i < 0 {
			w.Fatalf("%s says not where it is from", m.Value)
		}
		at = append(at, string(m.Headers[i].Value))
	}
	slices.Sort(at)
	return at
}

func positions(records ...*kgo.Record) []string {
	var at []string
	for _, m := range records {
		at = append(at, position(m).String())
	}
	slices.Sort(at)
	return at
}

func position(m *kgo.Record) record.Position {
	return record.Position{Partition: m.Partition, Offset: m.Offset}
}

const (
	text  = `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta": "a" }`
	start = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`
)

func TestRun_PublishesWhatWasPlanned(t *testing.T) {
	kafkatest.OnBoth(t, 3, func(t *testing.T, cfg kafka.Config) {
		w := newWorld(t, cfg, nil)
		for i := range 6 {
			w.event("acme", fmt.Sprint("t", i), "r", start, kgo.RecordHeader{Key: "authorization", Value: []byte("secret")},
				kgo.RecordHeader{Key: "traceparent", Value: []byte("00-1")})
			w.event("acme", fmt.Sprint("t", i), "r", text, kgo.RecordHeader{Key: replay.HeaderReplayedFrom, Value: []byte("9:9")})
			w.event("acme2", fmt.Sprint("t", i), "r", text)
		}
		input := w.write("acme", "t0", kafka.Headers(record.Headers{Kind: record.KindInput, RunID: "r", Seq: -1}), `{"threadId":"t0","runId":"r"}`)
		cancel := w.write("acme", "t0", kafka.Headers(record.Headers{Kind: record.KindCancel, Seq: -1}), `{}`)
		malformed := w.event("acme", "t1", "r", `no JSON`)
		var want []*kgo.Record
		bytes := int64(0)
		for _, m := range w.events {
			if strings.HasPrefix(string(m.Key), "acme/") && m != cancel {
				want = append(want, m)
				bytes += int64(len(m.Key) + len(m.Value))
			}
		}
		p := w.plan(replay.Options{Query: replay.Query{Tenant: "acme"}, Headers: []string{"traceparent", replay.HeaderReplayedFrom}})
		if p.Records != 14 || p.Bytes != bytes || p.Partitions != 2 || p.Inputs != 1 || p.Malformed != 1 || p.Erased != 0 ||
			!maps.Equal(p.Types, map[string]int{"RUN_STARTED": 6, "TEXT_MESSAGE_CONTENT": 6}) ||
			!maps.Equal(p.LeftOut, map[string]int{"authorization": 6, replay.HeaderReplayedFrom: 6}) || p.Headers["traceparent"] != 6 ||
			p.Headers["label-user"] != 13 ||
			!p.FirstAt.Equal(w.begin) || !p.LastAt.Equal(malformed.Timestamp) {
			t.Errorf("the plan is %+v", p)
		}
		if got := w.replayed(); len(got) != 0 {
			t.Fatalf("a plan has published %s", got)
		}
		d := w.run(p)
		if d.Published != 14 || len(d.Next) != 3 {
			t.Errorf("it says %+v", d)
		}
		if got := w.replayed(); !slices.Equal(got, positions(want...)) {
			t.Errorf("replayed are %s, want %s", got, positions(want...))
		}
		of := map[string]*kgo.Record{}
		for _, m := range want {
			of[position(m).String()] = m
		}
		last := map[string]time.Time{}
		for _, m := range kafkatest.Consume(t, cfg, w.target) {
			names := map[string]string{}
			for _, h := range m.Headers {
				if _, twice := names[h.Key]; twice {
					t.Errorf("header %s is there twice", h.Key)
				}
				names[h.Key] = string(h.Value)
			}
			was := of[names[replay.HeaderReplayedFrom]]
			if string(m.Key) != string(was.Key) || string(m.Value) != string(was.Value) || m.Partition != record.Partition(m.Key, 2) ||
				!m.Timestamp.Before(w.begin) {
				t.Errorf("%s has become %+v", position(was), m)
			}
			if was != input && (names["label-user"] != "ada" || names["run-id"] != "r" || names["skein-kind"] != "event") ||
				names["authorization"] != "" {
				t.Errorf("%s has the headers %v", position(was), names)
			}
			if was.Timestamp.Before(last[string(m.Key)]) {
				t.Errorf("%s comes behind a later one of its thread", position(was))
			}
			last[string(m.Key)] = was.Timestamp
		}
	})
}

func TestNewPlan_SelectsByRangeTypeAndThread(t *testing.T) {
	w := newWorld(t, kafkatest.Start(t, 3), nil)
	var of [6][]*kgo.Record
	for range 4 {
		for i := range of {
			of[i] = append(of[i], w.event("acme", fmt.Sprint("t", i), "", text), w.event("acme", fmt.Sprint("t", i), "", start))
		}
	}
	between := func(text string) record.Range {
		r, err := record.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	at := func(m *kgo.Record) string { return "@" + m.Timestamp.Format(time.RFC3339Nano) }
	all := func(keep func(m *kgo.Record) bool) []*kgo.Record {
		var out []*kgo.Record
		for _, m := range w.events {
			if keep(m) {
				out = append(out, m)
			}
		}
		return out
	}
	of0 := of[0]
	for name, c := range map[string]struct {
		query replay.Query
		want  []*kgo.Record
	}{
		"a thread":        {replay.Query{Tenant: "acme", Thread: "t0"}, of0},
		"from a position": {replay.Query{Tenant: "acme", Thread: "t0", Range: between(position(of0[3]).String())}, of0[3:]},
		"to a position":   {replay.Query{Tenant: "acme", Thread: "t0", Range: between(":" + position(of0[3]).String())}, of0[:3]},
		"between times": {replay.Query{Tenant: "acme", Range: between(at(of0[2]) + ":" + at(of[3][5]))}, all(func(m *kgo.Record) bool {
			return !m.Timestamp.Before(of0[2].Timestamp) && m.Timestamp.Before(of[3][5].Timestamp)
		})},
		"from the end": {replay.Query{Tenant: "acme", Range: between("end")}, nil},
		"one type": {replay.Query{Tenant: "acme", Thread: "t0", Types: []agui.Type{"RUN_STARTED"}},
			[]*kgo.Record{of0[1], of0[3], of0[5], of0[7]}},
		"another tenant's":       {replay.Query{Tenant: "acm"}, nil},
		"from the end of a time": {replay.Query{Tenant: "acme", Range: between("@2096-01-01T00:00:00Z")}, nil},
		"a partition by position": {replay.Query{Tenant: "acme", Range: between(position(of0[3]).String())},
			all(func(m *kgo.Record) bool { return m.Partition == of0[3].Partition && m.Offset >= of0[3].Offset })},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.plan(replay.Options{Query: c.query})
			if p.Records != len(c.want) {
				t.Errorf("it selects %d, want %d: %+v", p.Records, len(c.want), p)
			}
		})
	}
	for name, q := range map[string]replay.Query{
		"a position of another partition than the thread's": {Tenant: "acme", Thread: "t0",
			Range: between(fmt.Sprintf("%d:0", (of0[0].Partition+1)%3))},
		"a partition that is not there": {Tenant: "acme", Range: between("17:0")},
		"a thread of nobody":            {Thread: "t0"},
		"a tenant that is none":         {Tenant: ".."},
	} {
		if _, err := replay.NewPlan(t.Context(), w.cfg, replay.Options{Query: q, To: w.target}); !errors.Is(err, replay.ErrQuery) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What was erased is nobody's any more, whoever tells of it, and also if it was erased between plan and run.
func TestRun_LeavesOutWhatWasErased(t *testing.T) {
	kafkatest.OnBoth(t, 3, func(t *testing.T, cfg kafka.Config) {
		w := newWorld(t, cfg, nil)
		erase := func(thread string) *kgo.Record {
			return w.write("acme", thread, kafka.Headers(record.Headers{Kind: record.KindErase, Seq: -1}), `{}`)
		}
		w.event("acme", "told", "", text)
		gone := w.event("acme", "told", "", text)
		kafkatest.Produce(t, cfg,
			&kgo.Record{Topic: cfg.Topics().Runs, Partition: gone.Partition, Key: gone.Key, Value: record.EncodeErased(gone.Offset + 1),
				Headers: kafka.Headers(record.Headers{Kind: record.KindErase, Seq: -1})},
			&kgo.Record{Topic: cfg.Topics().Runs, Partition: gone.Partition, Key: []byte(record.ProgressKey),
				Value:   record.EncodeProgress(record.Progress{Next: gone.Offset + 1}),
				Headers: kafka.Headers(record.Headers{Kind: record.KindProgress, Seq: -1})})
		anew := w.event("acme", "told", "", text)
		w.event("acme", "asked", "", text)
		erase("asked")
		again := w.event("acme", "asked", "", text)
		w.event("acme", "meanwhile", "", text)
		p := w.plan(replay.Options{Query: replay.Query{Tenant: "acme"}})
		if p.Records != 3 || p.Erased != 3 {
			t.Errorf("the plan has %d, and %d erased", p.Records, p.Erased)
		}
		erase("meanwhile")
		if d := w.run(p); d.Published != 2 {
			t.Errorf("it says %+v", d)
		}
		if got, want := w.replayed(), positions(anew, again); !slices.Equal(got, want) {
			t.Errorf("replayed are %s, want %s", got, want)
		}
	})
}

func TestNewPlan_OfOneRun(t *testing.T) {
	w := newWorld(t, kafkatest.Start(t, 3), nil)
	first := w.event("acme", "t", "r", start)
	inside := w.event("acme", "t", "", text)
	second := w.event("acme", "t", "s", text)
	w.event("acme", "other", "r", text)
	late := w.event("acme", "t", "r", text)
	for run, span := range map[string][2]int64{"r": {first.Offset, late.Offset}, "s": {second.Offset, late.Offset}} {
		value, err := record.EncodeRun(&record.Run{
			Tenant: "acme", ThreadID: "t", RunID: run, Status: record.StatusFinished,
			Lineage: record.Lineage{ParentBy: record.ParentNone, BranchID: run, RootRunID: run},
			Raw:     record.Raw{First: span[0], Next: span[1], Ranges: [][2]int64{span}},
		})
		if err != nil {
			t.Fatal(err)
		}
		kafkatest.Produce(t, w.cfg, &kgo.Record{Topic: w.cfg.Topics().Runs, Partition: first.Partition,
			Key: []byte(string(first.Key) + "/" + run), Value: value,
			Headers: kafka.Headers(record.Headers{Kind: record.KindRun, RunID: run, Seq: -1})})
	}
	w.run(w.plan(replay.Options{Query: replay.Query{Tenant: "acme", Thread: "t", Run: "r"}}))
	if got, want := w.replayed(), positions(first, inside); !slices.Equal(got, want) {
		t.Errorf("replayed are %s, want %s", got, want)
	}
	if _, err := replay.NewPlan(t.Context(), w.cfg,
		replay.Options{Query: replay.Query{Tenant: "acme", Thread: "t", Run: "q"}, To: w.target}); !errors.Is(err, replay.ErrNoRun) {
		t.Errorf("of a run that is not there it says %v", err)
	}
}

func TestNewPlan_RefusesTopicsThatAreNotForThis(t *testing.T) {
	cfg := kafkatest.Start(t, 3)
	for _, prefix := range []string{"", "x", "acme.", "a.b-c_"} {
		for _, topic := range (kafka.Config{TopicPrefix: prefix}).Topics().All() {
			if _, err := replay.NewPlan(t.Context(), cfg, replay.Options{To: topic}); !errors.Is(err, replay.ErrTopicSet) {
				t.Errorf("%s: %v", topic, err)
			}
		}
	}
	if _, err := replay.NewPlan(t.Context(), cfg, replay.Options{To: "nowhere"}); !errors.Is(err, kafka.ErrNoTopic) {
		t.Errorf("a topic that is not there: %v", err)
	}
	if _, err := replay.NewPlan(t.Context(), cfg, replay.Options{To: "__consumer_offsets"}); err == nil {
		t.Error("Kafka's own topic is taken")
	}
	for _, name := range []string{"skein.events2", "events", "for.tests"} {
		if kafka.InTopicSet(name) {
			t.Errorf("%s is taken for a topic set's", name)
		}
	}
}

func TestNewPlan_SaysWhereItBeginsIfTheFirstAreGone(t *testing.T) {
	c := kafkatest.StartCluster(t, 3)
	w := newWorld(t, c.Config, nil)
	var last *kgo.Record
	for range 5 {
		last = w.event("acme", "t", "", text)
	}
	if err := c.Fake.DeleteRecords(last.Topic, last.Partition, last.Offset); err != nil {
		t.Fatal(err)
	}
	first := record.Position{Partition: last.Partition, Offset: 1}
	_, err := replay.NewPlan(t.Context(), w.cfg,
		replay.Options{Query: replay.Query{Tenant: "acme", Range: record.Range{From: record.Point{Position: &first}}}, To: w.target})
	if !errors.Is(err, replay.ErrGone) || !strings.Contains(err.Error(), "begins at "+position(last).String()) {
		t.Errorf("it says %v", err)
	}
	if p := w.plan(replay.Options{Query: replay.Query{Tenant: "acme"}}); p.Records != 1 {
		t.Errorf("without a start it has %d", p.Records)
	}
}

// A record that the topic does not take ends it; what lies before was published, and the same from there on completes it.
func TestRun_SaysWhereToGoOn(t *testing.T) {
	kafkatest.OnBoth(t, 3, func(t *testing.T, cfg kafka.Config) {
		most := "2000"
		w := newWorld(t, cfg, map[string]*string{"max.message.bytes": &most, "compression.type": pointer("uncompressed")})
		var noise strings.Builder
		for i := range 4000 {
			fmt.Fprintf(&noise, "%x", i*i*7919%104729)
		}
		w.event("acme", "t", "", text)
		large := w.event("acme", "t", "", `{"type":"CUSTOM","name":"n","value":"`+noise.String()+`"}`)
		p := w.plan(replay.Options{Query: replay.Query{Tenant: "acme", Thread: "t"}})
		if p.TooLarge != 1 {
			t.Errorf("the plan has %d that are too large", p.TooLarge)
		}
		d, err := p.Run(t.Context())
		if !errors.Is(err, kerr.MessageTooLarge) || !strings.Contains(err.Error(), position(large).String()) ||
			!strings.Contains(err.Error(), "max.message.bytes") {
			t.Errorf("it ends with %v", err)
		}
		if d.Published != 1 || len(d.Next) != 1 || d.Next[0] != position(large) {
			t.Errorf("it says %+v", d)
		}
	})
}

func pointer(s string) *string { return &s }

// Pauses are those of the events, by the factor, and a stopped replay has published what was due.
func TestRun_KeepsThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := kafkatest.StartCluster(t, 3, kafkatest.Virtual())
		w := newWorld(t, c.Config, nil)
		for i := range 11 { // 10 s, over all partitions
			w.event("acme", fmt.Sprint("t", i), "", text)
		}
		for pace, want := range map[replay.Pace]time.Duration{0: 0, 1: 10 * time.Second, 4: 2500 * time.Millisecond, 0.5: 20 * time.Second} {
			p := w.plan(replay.Options{Query: replay.Query{Tenant: "acme"}, Pace: pace})
			begin := time.Now()
			w.run(p)
			if took := time.Since(begin); took < want || took > want+time.Second {
				t.Errorf("at %v it takes %v, want %v", pace, took, want)
			}
		}
		p := w.plan(replay.Options{Query: replay.Query{Tenant: "acme"}, Pace: 1})
		ctx, stop := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer stop()
		if d, err := p.Run(ctx); !errors.Is(err, context.DeadlineExceeded) || d.Published != 5 {
			t.Errorf("stopped after 4.5 s it says %+v, %v", d, err)
		}
	})
}

// What is erased while a slow replay goes on is left out from a minute later on.
func TestRun_LeavesOutWhatIsErasedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, kafkatest.StartCluster(t, 3, kafkatest.Virtual()).Config, nil)
		var want []*kgo.Record
		for i := range 4 {
			if m := w.event("acme", "erased", "", text); i < 2 { // at 0, 100, 200 and 300 s
				want = append(want, m)
			}
			want = append(want, w.event("acme", "kept", "", text))
		}
		p := w.plan(replay.Options{Query: replay.Query{Tenant: "acme"}, Pace: 0.02}) // 50 s for each second
		done := make(chan replay.Done, 1)
		go func() {
			d, err := p.Run(t.Context())
			if err != nil {
				t.Error(err)
			}
			done <- d
		}()
		time.Sleep(110 * time.Second)
		w.write("acme", "erased", kafka.Headers(record.Headers{Kind: record.KindErase, Seq: -1}), `{}`)
		if d := <-done; d.Published != len(want) {
			t.Errorf("it says %+v", d)
		}
		if got := w.replayed(); !slices.Equal(got, positions(want...)) {
			t.Errorf("replayed are %s, want %s", got, positions(want...))
		}
	})
}

func TestRun_FollowsWhatComes(t *testing.T) {
	kafkatest.OnBoth(t, 3, func(t *testing.T, cfg kafka.Config) {
		w := newWorld(t, cfg, nil)
		w.event("acme", "before", "", text)
		from := record.Range{From: record.Point{End: true}}
		p := w.plan(replay.Options{Query: replay.Query{Tenant: "acme", Range: from, Types: []agui.Type{"RUN_STARTED"}}, Follow: true})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		type end struct {
			replay.Done
			err error
		}
		ended := make(chan end, 1)
		go func() {
			d, err := p.Run(ctx)
			ended <- end{d, err}
		}()
		var want []*kgo.Record
		for i := range 5 {
			want = append(want, w.event("acme", fmt.Sprint("t", i), "", start))
			w.event("acme", fmt.Sprint("t", i), "", text)
			w.event("other", fmt.Sprint("t", i), "", start)
		}
		kafkatest.ConsumeUntil(t, cfg, w.target, func(got []*kgo.Record) bool { return len(got) >= len(want) })
		stop()
		if e := <-ended; !errors.Is(e.err, context.Canceled) || e.Published != len(want) {
			t.Errorf("it says %+v, %v", e.Done, e.err)
		}
		if got := w.replayed(); !slices.Equal(got, positions(want...)) {
			t.Errorf("replayed are %s, want %s", got, positions(want...))
		}
	})
}
