package query

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// wrote has the indexer write an entry of partition 3.
func (f *fixture) wrote(e store.Entry) {
	f.t.Helper()
	f.version++
	e.Partition, e.Version = 3, f.version
	if err := f.store.Write(context.Background(), []store.Entry{e}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) erased(thread string, below int64, at time.Time) {
	f.t.Helper()
	f.wrote(store.Entry{Tenant: "acme", ThreadID: thread, Erasure: &store.Erasure{Below: below, At: at}})
}

// erasures adds erasures of acme's threads "chat" (3:1 and 3:3) and "other" (3:2), and one of another
// tenant (3:4), among events.
func erasures(t *testing.T) *rawFixture {
	f := newRawFixture(t)
	erase := func(tenantID, thread string) {
		f.add(tenantID, thread, record.Headers{Version: record.Version, Kind: record.KindErase, Seq: -1}, "{}")
	}
	f.event("r", `{"type":"RUN_STARTED","threadId":"chat","runId":"r"}`)
	erase("acme", "chat")
	erase("acme", "other")
	erase("acme", "chat")
	erase("umbrella", "chat")
	kafkatest.Produce(t, f.cluster.Config, f.log...)
	return f
}

func TestErasure_IsDoneOnceTheIndexKnowsIt(t *testing.T) {
	f := erasures(t)
	ask := func(path string) erasureAnswer {
		t.Helper()
		var a erasureAnswer
		described(t, "Erasure", f.json(path, &a).body)
		return a
	}
	state := func(what, path, want string) erasureAnswer {
		t.Helper()
		a := ask(path)
		if a.State != want {
			t.Errorf("%s: %s is %+v, want %s", what, path, a, want)
		}
		return a
	}
	// A row of another thread says nothing, however far its run goes.
	other := run("elsewhere", "far", 100)
	f.put(other)
	a := state("at first", "/v1/erasures/3:1?wait=true", erasurePending)
	if a.ThreadID != "chat" || a.Position.String() != "3:1" || !a.RequestedAt.Equal(f.log[1].Timestamp) || a.ErasedAt != nil ||
		a.LocalPurgedBy != nil || a.CompactedBy != nil || a.RawGoneBy != nil {
		t.Errorf("pending is told as %+v", a)
	}

	at := time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC)
	f.erased("chat", 2, at)
	a = state("erased", "/v1/erasures/3:1", erasureDone)
	day := 24 * time.Hour
	if a.LocalPurgedBy == nil || !a.LocalPurgedBy.Equal(at.Add(15*time.Minute)) {
		t.Errorf("done is told as %+v; want a bound of a quarter of an hour for the compactor's local store", a)
	}
	if a.ErasedAt == nil || !a.ErasedAt.Equal(at) || !a.CompactedBy.Equal(at.Add(day)) || !a.RawGoneBy.Equal(at.Add((30+7)*day)) {
		t.Errorf("done is told as %+v; want bounds of 1 and 37 days behind %v", a, at)
	}
	state("the next one", "/v1/erasures/3:3", erasurePending)
	state("another thread's", "/v1/erasures/3:2", erasurePending)

	f.wrote(store.Entry{Position: &store.Position{Next: 3}})
	if a = state("nothing was there", "/v1/erasures/3:2", erasureDone); a.ErasedAt != nil || a.IndexedTo.String() != "3:2" {
		t.Errorf("where nothing was there the answer is %+v", a)
	}
	state("beyond the position", "/v1/erasures/3:3", erasurePending)
	f.wrote(store.Entry{Position: &store.Position{Next: 4}})
	if a = state("nothing was there since", "/v1/erasures/3:3", erasureDone); a.ErasedAt == nil || !a.ErasedAt.Equal(at) {
		t.Errorf("where nothing was there since, the answer is %+v", a)
	}
}

// What is erased is gone, by whatever id it is asked for, also once the thread has runs again. Another tenant learns nothing of it.
func TestErasure_IsGoneByWhateverID(t *testing.T) {
	f := erasures(t)
	f.erased("chat", 4, time.Now())
	gone := func(path string, headers ...string) {
		t.Helper()
		if r := f.get("acme", path, headers...); r.status != http.StatusGone || !strings.Contains(r.body, `"reason":"erased"`) {
			t.Errorf("%s %q: %d %s", path, headers, r.status, r.body)
		}
	}
	stream, seq := "/v1/threads/chat/runs/r/stream", []string{"Last-Event-ID", "seq:5"}
	for _, rt := range readRoutes() {
		if !strings.Contains(rt.Pattern, "{thread}") {
			continue
		}
		path := pathOf(rt.Pattern, "chat", "r")
		if strings.HasSuffix(path, "/changes") {
			path += "?path=/x"
		}
		gone(path)
		f.get("umbrella", path).problem(t, http.StatusNotFound)
	}
	gone("/v1/threads/chat?atLeast=3:0")
	gone(stream, seq...)

	again := run("chat", "r", 1)
	again.Raw.Partition, again.Raw.NextSeq = 3, 2
	f.put(again)
	for _, query := range []string{"/events?from=3:0", "/events?to=3:1", "/state?at=3:0", "/state?from=3:0",
		"/changes?path=/x&from=0:before"} {
		gone("/v1/threads/chat/runs/r" + query)
	}
	for _, path := range []string{"/runs/before", "/runs/before/checkout", "/lineage?ancestorsOf=before", "/events?branch=before",
		"/diff?from=before"} {
		gone("/v1/threads/chat" + path)
	}
	gone(stream, "Last-Event-ID", "3:0")
	gone("/v1/threads/chat/stream", "Last-Event-ID", "3:0")
	gone(stream, seq...)
	again.Raw.NextSeq, again.Stats.Anomalies = 9, map[string]int64{fold.AnomalyGap: 1} // the agent has gone on with its numbers
	f.put(again)
	gone(stream, seq...)
	if r := f.get("acme", "/v1/threads/chat"); r.status != http.StatusOK {
		t.Errorf("the thread that came after it: %d %s", r.status, r.body)
	}
}

func TestErasure_WaitsForTheIndex(t *testing.T) {
	raw := erasures(t)
	calls := make(chan struct{}, 1)
	f := startFixtureOver(t, time.Minute, raw.raw.cfg, func(r store.Reader) store.Reader { return asked{r, calls} })
	done := make(chan reply)
	go func() { done <- f.get("acme", "/v1/erasures/3:1?wait=true") }()
	<-calls // nothing is there yet
	f.erased("chat", 2, time.Now())
	if r := <-done; r.status != http.StatusOK || !strings.Contains(r.body, `"state":"done"`) {
		t.Errorf("answer %d %s", r.status, r.body)
	}
}

func TestErasure_IsItsTenantsAlone(t *testing.T) {
	f := erasures(t)
	nowhere := f.get("acme", "/v1/erasures/3:99")
	nowhere.problem(t, http.StatusNotFound)
	for name, path := range map[string]string{
		"another tenant's":    "/v1/erasures/3:4",
		"an event":            "/v1/erasures/3:0",
		"another partition":   "/v1/erasures/2:1",
		"no partition at all": "/v1/erasures/4:1",
	} {
		if r := f.get("acme", path); r.status != nowhere.status || r.body != nowhere.body {
			t.Errorf("%s is answered with %d %s, what is nowhere with %s", name, r.status, r.body, nowhere.body)
		}
	}
	for _, path := range []string{"/v1/erasures/3", "/v1/erasures/x:y", "/v1/erasures/3:-1", "/v1/erasures/3:1?wait=yes"} {
		f.get("acme", path).problem(t, http.StatusBadRequest)
	}
	f.get("reader", "/v1/erasures/3:1").problem(t, http.StatusForbidden)
}

func TestErasure_SaysWhatRetentionHasTaken(t *testing.T) {
	f := erasures(t)
	if err := f.cluster.Fake.DeleteRecords(f.cluster.Config.Topics().Events, 3, 2); err != nil {
		t.Fatal(err)
	}
	f.get("acme", "/v1/erasures/3:1").problem(t, http.StatusGone)
	var a erasureAnswer
	f.json("/v1/erasures/3:2", &a)
}

// A bound is not made up where the brokers set none.
func TestErasure_TellsNoBoundWhereThereIsNone(t *testing.T) {
	f := erasures(t)
	f.erased("chat", 2, time.Now())
	adm := kafkatest.Admin(t, f.cluster.Config)
	set := func(topic, key, value string) {
		t.Helper()
		r, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: key, Value: &value}}, topic)
		if err != nil || r[0].Err != nil {
			t.Fatal(err, r)
		}
	}
	topics := f.cluster.Config.Topics()
	set(topics.Snapshots, "max.compaction.lag.ms", "9223372036854775807")
	set(topics.DeadLetters, "retention.ms", "-1")
	var a erasureAnswer
	if r := f.json("/v1/erasures/3:1", &a); a.State != erasureDone || a.CompactedBy != nil || a.RawGoneBy != nil {
		t.Errorf("answer %s", r.body)
	}
}

// Where signatures are required, an erasure without one was refused, unless it is from before.
func TestErasure_WithoutASignatureIsNoneUnlessItErased(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := kafkatest.StartCluster(t, 4)
	var err error
	if cluster.Config.IngestKeys, err = kafka.OpenIngestKeys(path, slog.New(slog.DiscardHandler), prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	f := newRawFixtureOver(t, cluster)
	for range 2 {
		f.add("acme", "chat", record.Headers{Kind: record.KindErase, Seq: -1}, "{}")
	}
	f.produce()
	f.erased("chat", 1, time.Now())
	f.wrote(store.Entry{Position: &store.Position{Next: 2}})
	var a erasureAnswer
	if f.json("/v1/erasures/3:0", &a); a.State != erasureDone {
		t.Errorf("the one from before is %+v", a)
	}
	f.get("acme", "/v1/erasures/3:1").problem(t, http.StatusNotFound)
}
