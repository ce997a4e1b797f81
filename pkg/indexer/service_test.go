package indexer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/skeinhq/skein/internal/logtest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeStore keeps the newest entry of each run and can be made to fail.
type fakeStore struct {
	mu      sync.Mutex
	rows    map[string]store.Entry
	next    map[int32]int64 // positions
	blocks  [][]store.Entry
	topic   string // that the rows are of
	silent  error  // in the place of saying which
	fail    error
	failed  int
	onWrite func([]store.Entry) error
}

func newFakeStore() *fakeStore {
	return &fakeStore{rows: map[string]store.Entry{}, next: map[int32]int64{}}
}

func (f *fakeStore) Follow(_ context.Context, topicID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silent != nil {
		return f.silent
	}
	if f.topic == "" {
		f.topic = topicID
	}
	if f.topic != topicID {
		return store.ErrOtherTopic
	}
	return nil
}

func (f *fakeStore) Write(ctx context.Context, entries []store.Entry) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.fail != nil {
		f.failed++
		return f.fail
	}
	if f.onWrite != nil {
		if err := f.onWrite(entries); err != nil {
			return err
		}
	}
	f.blocks = append(f.blocks, slices.Clone(entries))
	for _, e := range entries {
		if e.Position != nil {
			f.next[e.Partition] = max(f.next[e.Partition], e.Position.Next)
			continue
		}
		k := e.Tenant + "/" + e.ThreadID + "/" + e.RunID
		if e.Detail != nil {
			k += "/" + e.Detail.Name
		}
		if old, ok := f.rows[k]; !ok || old.Version <= e.Version {
			f.rows[k] = e
		}
	}
	return nil
}

func (f *fakeStore) Close() error { return nil }

func (f *fakeStore) set(change func(*fakeStore)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// text lists the rows.
func (f *fakeStore) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(f.rows)) {
		e := f.rows[k]
		status := "deleted"
		switch {
		case e.Run != nil:
			status = string(e.Run.Status)
		case e.Erasure != nil:
			status = fmt.Sprintf("erased below %d", e.Erasure.Below)
		case e.Detail != nil:
			status = fmt.Sprintf("%q", e.Detail.Value)
		}
		fmt.Fprintf(&b, "%s %d:%d %s\n", k, e.Partition, e.Version, status)
	}
	return b.String()
}

func testConfig(k kafka.Config) Config {
	cfg := DefaultConfig(k)
	cfg.MaxDelay = 20 * time.Millisecond
	cfg.minBackoff, cfg.maxBackoff = 5*time.Millisecond, 20*time.Millisecond
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Registerer = prometheus.NewRegistry()
	return cfg
}

// running is an indexer under test.
type running struct {
	*Service
	cancel context.CancelFunc
	done   chan error
}

// start runs an indexer until the test ends or stop is called.
func start(t *testing.T, cfg Config, w store.Writer) *running {
	t.Helper()
	s, err := New(cfg, w)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Service: s, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

// stop ends it and returns what Run returned.
func (r *running) stop() error {
	r.cancel()
	err := <-r.done
	r.done <- nil
	return err
}

var until = kafkatest.Eventually

// runRecord is a record of skein.runs; an empty status makes a tombstone.
func runRecord(t *testing.T, cfg kafka.Config, partition int32, run string, status record.Status) *kgo.Record {
	t.Helper()
	key, err := record.RunKey("acme", "thread", run)
	if err != nil {
		t.Fatal(err)
	}
	r := &kgo.Record{
		Topic: cfg.Topics().Runs, Partition: partition, Key: []byte(key),
		Headers: kafka.Headers(record.Headers{Kind: record.KindRun, Seq: -1}),
	}
	if status == "" {
		return r
	}
	r.Value, err = record.EncodeRun(&record.Run{
		Tenant: "acme", ThreadID: "thread", RunID: run, Status: status, Lineage: record.Lineage{ParentBy: record.ParentNone},
		Raw: record.Raw{Partition: partition},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func fence(cfg kafka.Config, partition int32) *kgo.Record {
	return &kgo.Record{
		Topic: cfg.Topics().Runs, Partition: partition, Key: []byte("fence"), Value: []byte("{}"),
		Headers: kafka.Headers(record.Headers{Kind: record.KindFence, Seq: -1}),
	}
}

// committed returns the group's offsets.
func committed(t *testing.T, cfg Config) map[int32]int64 {
	t.Helper()
	k := cfg.Kafka
	k.Registerer = nil
	adm, err := kafka.NewAdmin(k)
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	offsets, err := adm.FetchOffsets(context.Background(), cfg.Kafka.IndexerGroup())
	if err != nil {
		t.Fatal(err)
	}
	out := map[int32]int64{}
	offsets.Each(func(o kadm.OffsetResponse) { out[o.Partition] = o.At })
	return out
}

// detailRecord is a record of a detail of acme's thread.
func detailRecord(k kafka.Config, partition int32, name, value string) *kgo.Record {
	key := record.DetailKeyOf("acme/thread", name)
	return &kgo.Record{Topic: k.Topics().Runs, Partition: partition, Key: []byte(key), Value: []byte(value),
		Headers: kafka.Headers(record.Headers{Kind: record.KindThread, Seq: -1})}
}

func TestService_IndexesRunsAndTombstonesAndSkipsFences(t *testing.T) {
	k := kafkatest.Start(t, 2)
	cfg, st := testConfig(k), newFakeStore()
	kafkatest.Produce(t, k,
		fence(k, 0),
		runRecord(t, k, 0, "a", record.StatusRunning),
		runRecord(t, k, 1, "b", record.StatusFinished),
		runRecord(t, k, 0, "a", record.StatusFinished),
		runRecord(t, k, 0, "c", record.StatusError),
		runRecord(t, k, 0, "c", ""),
		detailRecord(k, 0, record.DetailTitle, `"Trip to Oslo"`), detailRecord(k, 0, record.DetailArchived, ""),
		detailRecord(k, 0, record.DetailTitle, `{"no": "title"}`),
		&kgo.Record{Topic: k.Topics().Runs, Partition: 0, Key: []byte("acme/thread"), Value: record.EncodeErased(9),
			Headers: kafka.Headers(record.Headers{Kind: record.KindErase, Seq: -1})},
	)
	s := start(t, cfg, st)
	until(t, "ready", func() bool { return s.Ready() == nil })
	want := "acme/thread/ 0:8 erased below 9\nacme/thread//archived 0:6 \"\"\nacme/thread//title 0:5 \"Trip to Oslo\"\n" +
		"acme/thread/a 0:2 finished\nacme/thread/b 1:0 finished\nacme/thread/c 0:4 deleted\n"
	until(t, "all rows are there", func() bool { return st.text() == want })
	until(t, "offsets are committed", func() bool { return maps.Equal(committed(t, cfg), map[int32]int64{0: 9, 1: 1}) })
	metrics := `
# HELP skein_indexer_records_total Records of skein.runs that were read, by outcome.
# TYPE skein_indexer_records_total counter
skein_indexer_records_total{outcome="detail"} 2
skein_indexer_records_total{outcome="erasure"} 1
skein_indexer_records_total{outcome="fence"} 1
skein_indexer_records_total{outcome="progress"} 0
skein_indexer_records_total{outcome="run"} 4
skein_indexer_records_total{outcome="tombstone"} 1
skein_indexer_records_total{outcome="undecodable"} 1
skein_indexer_records_total{outcome="unknown-version"} 0
`
	if err := testutil.GatherAndCompare(cfg.Registerer.(*prometheus.Registry), strings.NewReader(metrics),
		"skein_indexer_records_total"); err != nil {
		t.Error(err)
	}
	if err := s.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestService_SkipsWhatItCannotDecode(t *testing.T) {
	k := kafkatest.Start(t, 1)
	cfg, st := testConfig(k), newFakeStore()
	var log bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	broken := runRecord(t, k, 0, "broken", record.StatusFinished)
	broken.Value = []byte(`{"tenant":"secret payload`)
	key := runRecord(t, k, 0, "key", record.StatusFinished)
	key.Key = []byte("acme/thread")
	kind := runRecord(t, k, 0, "kind", record.StatusFinished)
	kind.Headers = kafka.Headers(record.Headers{Kind: record.KindSnapshot, Seq: -1})
	kafkatest.Produce(t, k, broken, key, kind, runRecord(t, k, 0, "good", record.StatusFinished))
	s := start(t, cfg, st)
	until(t, "the good record is there", func() bool { return st.text() == "acme/thread/good 0:3 finished\n" })
	if err := s.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if got := committed(t, cfg); got[0] != 4 {
		t.Errorf("committed %v, want 4: the skipped ones are done with", got)
	}
	for what, want := range map[outcome]float64{outcomeUnknownVersion: 0, outcomeUndecodable: 3, outcomeRun: 1} {
		if got := testutil.ToFloat64(s.metrics.records.WithLabelValues(string(what))); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	if n := strings.Count(log.String(), "record skipped"); n != 3 {
		t.Errorf("%d lines for 3 skipped records:\n%s", n, log.String())
	}
	if strings.Contains(log.String(), "secret payload") {
		t.Errorf("the log holds a payload:\n%s", log.String())
	}
}

func TestService_StopsAPartitionBeforeARecordOfANewerVersion(t *testing.T) {
	k := kafkatest.Start(t, 2)
	cfg, st := testConfig(k), newFakeStore()
	var log logtest.Log
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	newer := runRecord(t, k, 0, "newer", record.StatusFinished)
	newer.Headers = append(newer.Headers, kgo.RecordHeader{Key: record.HeaderWriter, Value: []byte("skein")})
	newer.Headers[0].Value = []byte("2")
	again := runRecord(t, k, 0, "again", record.StatusFinished)
	again.Headers = append(again.Headers, kgo.RecordHeader{Key: record.HeaderWriter, Value: []byte("skein")})
	again.Headers[0].Value = []byte("2")
	kafkatest.Produce(t, k, runRecord(t, k, 0, "before", record.StatusFinished), newer, again,
		runRecord(t, k, 0, "behind", record.StatusFinished), runRecord(t, k, 1, "other", record.StatusFinished))
	var s *running
	stops := func(rows string, offsets map[int32]int64) {
		t.Helper()
		until(t, "it stops", func() bool { return s.CheckVersions() != nil })
		until(t, "all before the record and on the other partition is there", func() bool { return st.text() == rows })
		until(t, "offsets are committed", func() bool { return maps.Equal(committed(t, cfg), offsets) })
		until(t, "it says so", func() bool { return strings.Contains(log.String(), "level=ERROR") })
		for _, part := range []string{k.Topics().Runs + "/0 at offset 1", "unknown record version 2", "knows up to 1"} {
			if err := s.CheckVersions(); !strings.Contains(err.Error(), part) {
				t.Errorf("readiness says %q, want %q in it", err, part)
			}
		}
		if err := s.Ready(); err != nil {
			t.Errorf("it is not ready, although the other partition goes on: %v", err)
		}
		metrics := `
# HELP skein_indexer_unknown_version_partitions Partitions that stopped at a record of a newer Skein, which this process cannot read.
# TYPE skein_indexer_unknown_version_partitions gauge
skein_indexer_unknown_version_partitions 1
`
		if err := testutil.GatherAndCompare(cfg.Registerer.(*prometheus.Registry), strings.NewReader(metrics),
			"skein_indexer_unknown_version_partitions"); err != nil {
			t.Error(err)
		}
		if got := testutil.ToFloat64(s.metrics.records.WithLabelValues(string(outcomeUnknownVersion))); got != 1 {
			t.Errorf("%v records of an unknown version, want 1", got)
		}
		if lines := log.Take(); strings.Count(lines, "level=ERROR") != 1 {
			t.Errorf("want one line of the log:\n%s", lines)
		}
	}
	s = start(t, cfg, st)
	stops("acme/thread/before 0:0 finished\nacme/thread/other 1:0 finished\n", map[int32]int64{0: 1, 1: 1})
	kafkatest.Produce(t, k, runRecord(t, k, 0, "later", record.StatusFinished), runRecord(t, k, 1, "more", record.StatusFinished))
	rows := "acme/thread/before 0:0 finished\nacme/thread/more 1:1 finished\nacme/thread/other 1:0 finished\n"
	until(t, "the other partition goes on", func() bool { return st.text() == rows })
	if err := s.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if lines := log.Take(); lines != "" {
		t.Errorf("more lines of the log:\n%s", lines)
	}
	// Who owns the partition next begins with the record.
	cfg.Registerer = prometheus.NewRegistry()
	s = start(t, cfg, st)
	stops(rows, map[int32]int64{0: 1, 1: 2})
}

// Weather: a block that the store does not take is written again, and nothing is committed before.
func TestService_WaitsForTheStoreAndCommitsAfterIt(t *testing.T) {
	k := kafkatest.Start(t, 1)
	cfg, st := testConfig(k), newFakeStore()
	st.fail = errors.New("the store is away")
	kafkatest.Produce(t, k, runRecord(t, k, 0, "a", record.StatusFinished))
	s := start(t, cfg, st)
	until(t, "several tries", func() bool { st.mu.Lock(); defer st.mu.Unlock(); return st.failed >= 3 })
	// The lag rises while nothing is done.
	stuck := s.metrics.lag.Seconds()
	until(t, "the lag rises", func() bool { return stuck > 0 && s.metrics.lag.Seconds() > stuck })
	if got := committed(t, cfg); len(got) != 0 {
		t.Fatalf("committed %v before anything was written", got)
	}
	var before map[int32]int64
	st.set(func(f *fakeStore) {
		f.fail = nil
		f.onWrite = func([]store.Entry) error { before = committed(t, cfg); return nil }
	})
	until(t, "the row is there", func() bool { return st.text() == "acme/thread/a 0:0 finished\n" })
	until(t, "the offset is committed", func() bool { return committed(t, cfg)[0] == 1 })
	until(t, "nothing waits any more", func() bool { return s.metrics.lag.Seconds() == 0 })
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(before) != 0 {
		t.Errorf("committed %v while the block was written", before)
	}
	if got := testutil.ToFloat64(s.metrics.writeErrors); got < 3 {
		t.Errorf("%v write errors counted", got)
	}
}

// A stop while the store is away gives up in time and commits nothing: it is all read again.
func TestService_StopsWhileTheStoreIsAway(t *testing.T) {
	k := kafkatest.Start(t, 1)
	cfg, st := testConfig(k), newFakeStore()
	cfg.drainTimeout = 50 * time.Millisecond
	st.fail = errors.New("the store is away")
	kafkatest.Produce(t, k, runRecord(t, k, 0, "a", record.StatusFinished))
	s := start(t, cfg, st)
	until(t, "a try", func() bool { st.mu.Lock(); defer st.mu.Unlock(); return st.failed > 0 })
	if err := s.stop(); err == nil {
		t.Error("Run says that all is well, but a block was not written")
	}
	if got := committed(t, cfg); len(got) != 0 {
		t.Errorf("committed %v", got)
	}
}

// What a compactor has aborted lies before what it has committed on the same partition, and gets no row.
func TestService_DoesNotReadWhatWasAborted(t *testing.T) {
	k := kafkatest.Start(t, 1)
	cl, err := kafka.NewProducer(k, kgo.TransactionalID("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		r := runRecord(t, k, 0, []string{"aborted", "committed"}[i], record.StatusFinished)
		if err := errors.Join(cl.BeginTransaction(), cl.ProduceSync(t.Context(), r).FirstErr(), cl.EndTransaction(t.Context(), end)); err != nil {
			t.Fatal(err)
		}
	}
	st := newFakeStore()
	start(t, testConfig(k), st)
	until(t, "the committed one is there", func() bool { return strings.Contains(st.text(), "committed") })
	if strings.Contains(st.text(), "aborted") {
		t.Errorf("rows:\n%s", st.text())
	}
}

// One member holds a block that its store does not take, and loses a partition meanwhile; the new
// owner writes and commits beyond it. When the first one's store comes back, its commit must not
// set the offset back.
func TestService_NeverCommitsAfterRevocation(t *testing.T) {
	k := kafkatest.Start(t, 2)
	cfg := testConfig(k)
	stuck, well := newFakeStore(), newFakeStore()
	stuck.fail = errors.New("the store is away")
	kafkatest.Produce(t, k, runRecord(t, k, 0, "a", record.StatusFinished), runRecord(t, k, 1, "b", record.StatusFinished))
	first := start(t, cfg, stuck)
	until(t, "the first member holds a block", func() bool { stuck.mu.Lock(); defer stuck.mu.Unlock(); return stuck.failed > 0 })

	cfg2 := cfg
	cfg2.Registerer = prometheus.NewRegistry()
	cfg2.Kafka.ClientID = "second"
	start(t, cfg2, well)
	until(t, "the second member has a partition", func() bool { return well.text() != "" })
	lost := int32(0)
	if strings.Contains(well.text(), "/b ") {
		lost = 1
	}
	kafkatest.Produce(t, k, runRecord(t, k, lost, "later", record.StatusFinished))
	until(t, "the second member is further", func() bool { return committed(t, cfg)[lost] == 2 })

	stuck.set(func(f *fakeStore) { f.fail = nil })
	until(t, "the first member has committed its own", func() bool { return committed(t, cfg)[1-lost] == 1 })
	if err := first.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if got := committed(t, cfg)[lost]; got != 2 {
		t.Errorf("the offset of the lost partition is %d, want 2: it was set back after revocation", got)
	}
}

func TestService_EndsWhereWaitingDoesNotHelp(t *testing.T) {
	t.Run("offset that the log does not have", func(t *testing.T) {
		k := kafkatest.Start(t, 1)
		cfg := testConfig(k)
		adm := kafkatest.Admin(t, k)
		var offsets kadm.Offsets
		offsets.AddOffset(k.Topics().Runs, 0, 1000, -1)
		if err := adm.CommitAllOffsets(t.Context(), cfg.Kafka.IndexerGroup(), offsets); err != nil {
			t.Fatal(err)
		}
		s, err := New(cfg, newFakeStore())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := s.Run(ctx); err == nil || !strings.Contains(err.Error(), "reset group") {
			t.Errorf("error %v, want one that says what to do", err)
		}
	})
	t.Run("topic that was made again", func(t *testing.T) {
		c := kafkatest.StartCluster(t, 1)
		s, err := New(testConfig(c.Config), newFakeStore())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Timeout)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		until(t, "it has its partition", func() bool { return s.Ready() == nil })
		runs := c.Config.Topics().Runs
		if err := errors.Join(c.Fake.DeleteTopic(runs), c.Fake.CreateTopic(runs, 1, nil)); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "reset group") {
			t.Errorf("error %v, want one that says what to do", err)
		}
	})
}

// The group has no offsets of a topic that was made again while the indexer was down, so it would be read from
// its start, and the old log's rows, of greater versions, would win. A second start is no better.
func TestService_EndsWhereTheTopicWasMadeAgainWhileItWasDown(t *testing.T) {
	c := kafkatest.StartCluster(t, 1)
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "lineage.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := st.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	indexed := func() error {
		_, err := st.Run(t.Context(), "acme", "thread", "a")
		return err
	}
	kafkatest.Produce(t, c.Config, fence(c.Config, 0), runRecord(t, c.Config, 0, "a", record.StatusFinished))
	for range 2 { // the topic is the same one
		s := start(t, testConfig(c.Config), st)
		until(t, "it indexes", func() bool { return s.Ready() == nil && indexed() == nil })
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
	}
	runs := c.Config.Topics().Runs
	if err := errors.Join(c.Fake.DeleteTopic(runs), c.Fake.CreateTopic(runs, 1, nil)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := New(testConfig(c.Config), st)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Timeout)
		defer cancel()
		if err := s.Run(ctx); !errors.Is(err, store.ErrOtherTopic) || !strings.Contains(err.Error(), "empty the store and reset group") {
			t.Fatalf("error %v, want one that says what to do", err)
		}
	}
}

func TestService_WaitsUntilTheStoreSaysWhatItFollows(t *testing.T) {
	k := kafkatest.Start(t, 1)
	cfg, st := testConfig(k), newFakeStore()
	away := errors.New("the store is away")
	st.silent = away
	kafkatest.Produce(t, k, runRecord(t, k, 0, "a", record.StatusFinished))
	s := start(t, cfg, st)
	until(t, "it says why it waits", func() bool { return errors.Is(s.Ready(), away) })
	if st.text() != "" {
		t.Errorf("it has written %s", st.text())
	}
	st.set(func(f *fakeStore) { f.silent = nil })
	until(t, "it indexes", func() bool { return s.Ready() == nil && st.text() != "" })
}

func TestConfig_Validate(t *testing.T) {
	good := testConfig(kafka.Config{Brokers: []string{"127.0.0.1:1"}})
	if err := good.Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	for name, change := range map[string]func(*Config){
		"no brokers":         func(c *Config) { c.Kafka.Brokers = nil },
		"blocks of no bytes": func(c *Config) { c.MaxBytes = 0 },
		"no delay":           func(c *Config) { c.MaxDelay = 0 },
		"too long a delay":   func(c *Config) { c.MaxDelay = time.Minute },
		"no logger":          func(c *Config) { c.Logger = nil },
		"no registerer":      func(c *Config) { c.Registerer = nil },
	} {
		c := good
		change(&c)
		if _, err := New(c, newFakeStore()); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
