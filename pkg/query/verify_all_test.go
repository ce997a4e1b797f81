package query

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/verify"
)

// publishRecords has the run records that were indexed lie on skein.runs, where their rows say.
func (f *rawFixture) publishRecords() {
	f.t.Helper()
	for at := int64(0); at <= f.version; at++ {
		m := &kgo.Record{
			Topic: f.cluster.Config.Topics().Runs, Partition: 3, Key: []byte(record.FenceKey),
			Headers: kafka.Headers(record.Headers{Kind: record.KindFence, Seq: -1}),
		}
		if value := f.records.values[record.Position{Partition: 3, Offset: at}]; value != nil {
			r, err := record.DecodeRun(value)
			if err != nil {
				f.t.Fatal(err)
			}
			key, err := record.RunKey(r.Tenant, r.ThreadID, r.RunID)
			if err != nil {
				f.t.Fatal(err)
			}
			m.Key, m.Value = []byte(key), value
			m.Headers = kafka.Headers(record.Headers{Kind: record.KindRun, RunID: r.RunID, Seq: -1})
		}
		kafkatest.Produce(f.t, f.cluster.Config, m)
		if m.Offset != at {
			f.t.Fatalf("record %d lies at offset %d", at, m.Offset)
		}
	}
}

// talkOf is a run of one message of any thread.
func (f *rawFixture) talkOf(tenantID, thread, run string) []int64 {
	f.t.Helper()
	var at []int64
	for _, value := range []string{
		fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run),
		`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"hello"}`,
		fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run),
	} {
		at = append(at, f.add(tenantID, thread, record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1}, value))
	}
	return at
}

// proofs are the answers on the lines of a body, by thread and run, and how many lines say how far it is.
func proofs(t testing.TB, body string) (all map[string]proofAnswer, order []string, progress int) {
	t.Helper()
	all = map[string]proofAnswer{}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, `{"progress":`) {
			described(t, "VerifyProgress", line)
			progress++
			continue
		}
		described(t, "Proof", line)
		var p proofAnswer
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		name := p.ThreadID + "/" + p.RunID
		all[name], order = p, append(order, name)
	}
	return all, order, progress
}

func TestVerifyAll_ProvesAllRunsOfTheTenant(t *testing.T) { onBothLogs(t, provesAllRuns) }

func provesAllRuns(f *rawFixture) {
	t := f.t
	f.indexedFor("acme", "z", "a", "", nil, f.talkOf("acme", "z", "a")...)
	b := f.talkOf("acme", "chat", "b")
	f.indexedFor("umbrella", "theirs", "c", "", nil, f.talkOf("umbrella", "theirs", "c")...)
	f.indexedFor("acme", "chat", "b", "", func(r *record.Run) {
		r.Messages[0].Raw = json.RawMessage(`{"id":"m","role":"assistant","content":"bye"}`)
	}, b...)
	d := f.talkOf("acme", "chat", "d")
	f.indexedFor("acme", "chat", "d", "", nil, d[:2]...) // an older record of it, and then its end
	f.indexedFor("acme", "chat", "d", "", func(r *record.Run) {
		r.ParentRunID, r.ParentBy, r.Base, r.BranchID, r.RootRunID, r.Depth = "", record.ParentNone, "", "d", "d", 0
	}, d...)
	f.publishRecords()

	r := f.get("acme", "/v1/verify")
	all, order, progress := proofs(t, r.body)
	if want := []string{"z/a", "chat/b", "chat/d"}; r.status != http.StatusOK || r.header.Get("Content-Type") != typeNDJSON ||
		!sameSet(order, want) || progress == 0 {
		t.Fatalf("%d, %v, %d lines of progress: %s", r.status, order, progress, r.body)
	}
	// d goes on from what b's record says, and was placed elsewhere.
	for name, want := range map[string]string{"z/a": "proved []", "chat/b": "differs [messages]", "chat/d": "differs [parentRunId parentBy branchId rootRunId depth base]"} {
		if p := all[name]; fmt.Sprint(p.Verdict, " ", p.Differences) != want || len(p.Unproved) > 0 {
			t.Errorf("%s: %s %v %q, want %s", name, p.Verdict, p.Differences, p.Unproved, want)
		}
	}
	if p := all["chat/b"]; p.DiffersFrom == nil || p.DiffersFrom.Offset != b[1] {
		t.Errorf("it differs from %v", p.DiffersFrom)
	}
	_, order, _ = proofs(t, f.get("umbrella", "/v1/verify").body)
	if !slices.Equal(order, []string{"theirs/c"}) {
		t.Errorf("of another tenant: %v", order)
	}
	if _, order, progress := proofs(t, f.get("nobody", "/v1/verify").body); len(order) > 0 || progress == 0 {
		t.Errorf("of nobody: %v", order)
	}
	if r := f.call(http.MethodHead, "acme", "/v1/verify"); r.status != http.StatusOK || r.body != "" {
		t.Errorf("HEAD: %d %s", r.status, r.body)
	}
	if p, want := f.oneProof("/v1/threads/chat/runs/b/verify"),
		all["chat/b"]; fmt.Sprint(p.Verdict, p.Differences, p.DiffersFrom, p.Raw, p.Record) != fmt.Sprint(want.Verdict, want.Differences,
		want.DiffersFrom, want.Raw, want.Record) {
		t.Errorf("by itself it is %+v, with the others %+v", p, want)
	}
}

func (f *rawFixture) oneProof(path string) (p proofAnswer) {
	f.t.Helper()
	f.json(path, &p)
	return p
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// Where the index is not of the same moment as the records, that is said.
func TestVerifyAll_SaysWhereTheIndexIsOfAnotherMoment(t *testing.T) {
	f := newRawFixture(t)
	for _, run := range []string{"same", "gone", "newer"} {
		f.indexedFor("acme", run, run, "", nil, f.talkOf("acme", run, run)...)
	}
	f.publishRecords()
	write := func(e store.Entry) {
		e.Partition, e.Tenant, e.RunID = 3, "acme", e.ThreadID
		if err := f.store.Write(t.Context(), []store.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	write(store.Entry{ThreadID: "gone", Version: 2})
	rows, err := f.store.Thread(t.Context(), "acme", "newer")
	if err != nil {
		t.Fatal(err)
	}
	write(store.Entry{ThreadID: "newer", Version: 10, Run: &rows[0].Run})
	all, _, _ := proofs(t, f.get("acme", "/v1/verify").body)
	for name, want := range map[string]string{
		"same/same": "proved [] []", "newer/newer": "proved [] [" + unindexedSince + "]", "gone/gone": "proved [] [" + unindexedYet + "]",
	} {
		if p := all[name]; fmt.Sprint(p.Verdict, " ", p.Differences, " ", p.Unproved) != want {
			t.Errorf("%s: %s %v %q, want %s", name, p.Verdict, p.Differences, p.Unproved, want)
		}
	}
}

// A row that says otherwise than its record: as the store never writes one, it is made up on the way.
type otherRows struct{ store.Reader }

func (r otherRows) Thread(ctx context.Context, tenant, thread string) ([]store.Run, error) {
	rows, err := r.Reader.Thread(ctx, tenant, thread)
	for i := range rows {
		rows[i].BranchID = "another"
	}
	return rows, err
}

func TestVerifyAll_FindsARowThatIsNotItsRecords(t *testing.T) {
	f := newRawFixtureWith(t, func(r store.Reader) store.Reader { return otherRows{r} })
	f.indexedFor("acme", "chat", "r", "", nil, f.talkOf("acme", "chat", "r")...)
	f.publishRecords()
	all, _, _ := proofs(t, f.get("acme", "/v1/verify").body)
	if p := all["chat/r"]; p.Verdict != verify.Differs || !slices.Equal(p.Differences, []string{"index"}) || p.DiffersFrom == nil {
		t.Errorf("%+v", p)
	}
}

// waiting is a store that does not answer until its caller leaves.
type waiting struct {
	store.Reader
	asked chan struct{}
}

func (w waiting) Thread(ctx context.Context, _, _ string) ([]store.Run, error) {
	w.asked <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// A tenant has one answered at a time; who leaves makes room.
func TestVerifyAll_EndsWithItsCaller(t *testing.T) {
	asked := make(chan struct{})
	f := newRawFixtureWith(t, func(r store.Reader) store.Reader { return waiting{r, asked} })
	f.indexedFor("acme", "chat", "r", "", nil, f.talkOf("acme", "chat", "r")...)
	f.publishRecords()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ended := make(chan struct{})
	go func() {
		defer func() { ended <- struct{}{} }()
		if resp, err := f.open(ctx, http.MethodGet, "acme", "/v1/verify"); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body) // until the caller leaves
			_ = resp.Body.Close()
		}
	}()
	<-asked
	f.get("acme", "/v1/verify").problem(t, http.StatusTooManyRequests)
	leave()
	<-ended
	for deadline := time.Now().Add(10 * time.Second); f.service.room.memory.Held() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(f.service.room.held())
		}
	}
}

func TestVerifyAll_ComesAgainWhereKafkaIsAway(t *testing.T) {
	f := newRawFixture(t)
	f.raw.cfg = kafka.Config{Brokers: []string{"127.0.0.1:1"}}
	f.get("acme", "/v1/verify").problem(t, http.StatusServiceUnavailable)
}
