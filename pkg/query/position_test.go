package query

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// decided indexes a progress record of partition 3, which comes behind the records so far.
func (f *fixture) decided(next int64) {
	f.t.Helper()
	f.version++
	err := f.store.Write(context.Background(), []store.Entry{{
		Partition: 3, Version: f.version, Position: &store.Position{Next: next},
	}})
	if err != nil {
		f.t.Fatal(err)
	}
}

// The last events of a partition may change no run's record: a write that was repeated is dropped, what
// comes after a run's end is a dead letter. Who reads behind such a write gets an answer all the same.
func TestAtLeast_IsReachedBehindWhatChangesNoRun(t *testing.T) {
	f := newFixture(t)
	f.put(run("chat", "run", 1, msg("u", "user", "x"))) // 3:10 to 3:19
	paths := []string{
		"/v1/threads/chat", "/v1/threads/chat/lineage", "/v1/threads/chat/history",
		"/v1/threads/chat/runs/run", "/v1/threads/chat/runs/run/history",
	}
	for _, path := range paths { // it lies at 3:20
		if r := f.get("acme", path+"?atLeast=3:20"); r.status != http.StatusTooEarly {
			t.Errorf("%s before it is decided: %d %s", path, r.status, r.body)
		}
	}
	f.get("acme", "/v1/threads/chat/runs/none/history?atLeast=3:20").problem(t, http.StatusTooEarly)
	f.get("other", "/v1/threads/chat?atLeast=3:20").problem(t, http.StatusTooEarly)
	f.decided(21)
	for _, path := range paths {
		r := f.get("acme", path+"?atLeast=3:20")
		if r.status != http.StatusOK || !strings.Contains(r.body, `"indexedTo":"3:20"`) {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
		if r := f.get("acme", path+"?atLeast=3:21"); r.status != http.StatusTooEarly {
			t.Errorf("%s beyond it: %d %s", path, r.status, r.body)
		}
	}
	f.get("acme", "/v1/threads/nobody?atLeast=3:20").problem(t, http.StatusNotFound)
	f.get("acme", "/v1/threads/chat/runs/none?atLeast=3:20").problem(t, http.StatusNotFound)
	f.get("acme", "/v1/threads/chat/runs/none/history?atLeast=3:20").problem(t, http.StatusNotFound)
	// It speaks of every tenant's events, and gives away no thread.
	f.get("other", "/v1/threads/chat?atLeast=3:20").problem(t, http.StatusNotFound)
}

// The index gets there by the run's record, or by the position alone.
func TestAtLeast_WaitsForTheIndex(t *testing.T) {
	record := run("chat", "run", 1, msg("u", "user", "x"))
	for at, next := range map[string]func(*fixture){
		"3:19": func(f *fixture) { f.put(record) },
		"3:20": func(f *fixture) { f.decided(21) },
	} {
		calls := make(chan struct{}, 1)
		f := newPatientFixture(t, func(r store.Reader) store.Reader { return asked{r, calls} })
		if at != "3:19" {
			f.put(record)
		}
		done := make(chan reply)
		go func() { done <- f.get("acme", "/v1/threads/chat/runs/run/history?atLeast="+at) }()
		<-calls // it is not there yet
		next(f)
		if r := <-done; r.status != http.StatusOK {
			t.Errorf("%s: %d %s", at, r.status, r.body)
		}
	}
}

// asked is a store that says when it was asked how far it is.
type asked struct {
	store.Reader
	calls chan struct{}
}

func (a asked) IndexedTo(ctx context.Context, tenant string) (map[int32]int64, error) {
	select {
	case a.calls <- struct{}{}:
	default:
	}
	return a.Reader.IndexedTo(ctx, tenant)
}

// How far an open run is told only its own record says; a sealed run misses nothing, also if another run of its thread is open.
func TestAtLeast_SaysWhatThereIsWhereItIsLate(t *testing.T) {
	f := newFixture(t)
	f.put(run("chat", "sealed", 1))
	open := opened(run("chat", "open", 2))
	f.put(open)
	f.put(run("other", "run", 9)) // the partition is indexed up to 3:99
	f.decided(100)
	for _, c := range []struct {
		path   string
		status int
	}{
		{"/v1/threads/chat/runs/sealed?atLeast=3:19", 200},
		{"/v1/threads/chat/runs/sealed?atLeast=3:99", 200}, // sealed: nothing can be missing
		{"/v1/threads/chat/runs/sealed?atLeast=3:100", 425},
		{"/v1/threads/chat/runs/open?atLeast=3:29", 200},
		{"/v1/threads/chat/runs/open?atLeast=3:30", 425}, // its record tells up to 29; others say nothing of it
		{"/v1/threads/chat/runs/open/history?atLeast=3:30", 425},
		{"/v1/threads/chat/history?atLeast=3:30", 425},
		{"/v1/threads/chat/lineage?atLeast=3:30", 425},
		{"/v1/threads/chat/lineage?atLeast=3:15", 200},
		{"/v1/threads/chat?atLeast=3:98", 425},
		{"/v1/threads/other?atLeast=3:98", 200},
		{"/v1/threads/other?atLeast=3:100", 425},
	} {
		r := f.get("acme", c.path)
		if r.status != c.status || !strings.Contains(r.body, `"threadId"`) || !strings.Contains(r.body, `"indexedTo":"3:99"`) {
			t.Errorf("%s: %d %s", c.path, r.status, r.body)
		}
		if c.status == 425 && r.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", c.path)
		}
	}
	f.get("acme", "/v1/threads/chat?atLeast=2:5").problem(t, http.StatusBadRequest)
	f.get("acme", "/v1/threads/chat?atLeast=5").problem(t, http.StatusBadRequest)
	f.get("acme", "/v1/threads/nobody?atLeast=3:5000").problem(t, http.StatusTooEarly)
	f.get("acme", "/v1/threads/nobody?atLeast=3:5").problem(t, http.StatusNotFound)
	const metrics = `
# HELP skein_query_index_waits_total Calls with atLeast by outcome: reached in time, or late.
# TYPE skein_query_index_waits_total counter
skein_query_index_waits_total{outcome="late"} 9
skein_query_index_waits_total{outcome="reached"} 5
`
	if err := testutil.GatherAndCompare(f.reg, strings.NewReader(metrics), "skein_query_index_waits_total"); err != nil {
		t.Error(err)
	}
	f.put(run("chat", "open", 2)) // its end
	for _, path := range []string{"/v1/threads/chat", "/v1/threads/chat/history", "/v1/threads/chat/runs/open/history"} {
		if r := f.get("acme", path+"?atLeast=3:99"); r.status != http.StatusOK {
			t.Errorf("%s once it is sealed: %d %s", path, r.status, r.body)
		}
	}
}

// After a failover (package adopt), a position whose event was not mirrored is told from one that never was.
func TestPosition_OfBeforeAFailoverIsTold(t *testing.T) {
	f := newRawFixture(t)
	thread, cluster := f.thread(), f.cluster.Config
	say := func(value string) int64 {
		return f.add("acme", thread, record.Headers{Kind: record.KindEvent, RunID: "r", Seq: -1}, value)
	}
	say(fmt.Sprintf(started, "r"))
	f.produce()
	txn, err := kafka.NewTransactor(t.Context(), cluster, "skein-topics-adopt")
	if err != nil {
		t.Fatal(err)
	}
	defer txn.Close()
	skipped := []*kgo.Record{{Topic: cluster.Topics().Events, Partition: 3}, {Topic: cluster.Topics().Events, Partition: 3}}
	err = errors.Join(txn.BeginTransaction(), txn.ProduceSync(t.Context(), skipped...).FirstErr(),
		txn.EndTransaction(t.Context(), kgo.TryAbort))
	if err != nil {
		t.Fatal(err)
	}
	say(fmt.Sprintf(finished, "r")) // 3:4, behind the transaction's marker
	f.produce()
	rec := run(thread, "r", 0)
	rec.Raw.First, rec.Raw.Next, rec.Raw.Ranges = 0, 5, [][2]int64{{0, 1}, {4, 5}}
	f.put(rec)
	f.decided(5)

	path := "/v1/threads/" + thread
	for _, r := range []reply{
		f.get("acme", path+"/stream", "Last-Event-ID", "3:2"), f.get("acme", path+"/runs/r/stream", "Last-Event-ID", "3:2"),
		f.get("acme", path+"?atLeast=3:2"), f.get("acme", path+"/history?atLeast=3:1"), f.get("acme", "/v1/erasures/3:2"),
	} {
		if r.problem(t, http.StatusGone); !strings.Contains(r.body, `"reason":"other-epoch"`) {
			t.Errorf("it says %s", r.body)
		}
	}
	f.get("acme", path+"/runs/r/stream", "Last-Event-ID", "2:0").problem(t, http.StatusBadRequest)
	if r := f.get("acme", path+"/runs/r/stream", "Last-Event-ID", "3:0"); !strings.Contains(r.body, "RUN_FINISHED") {
		t.Errorf("behind a mirrored event it says %d %s", r.status, r.body)
	}
	if r := f.get("acme", path+"?atLeast=3:4"); r.status != http.StatusOK {
		t.Errorf("with an event of the new epoch it says %d %s", r.status, r.body)
	}
}
