package query

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/verify"
)

// rawFixture is the stage over raw events on partition 3, where the fixture's records say they are.
type rawFixture struct {
	*fixture
	cluster *kafkatest.Cluster
	log     []*kgo.Record
	sent    int
	begin   time.Time // of the log; producers give up records that are old
}

func newRawFixture(t testing.TB) *rawFixture {
	t.Helper()
	return newRawFixtureOver(t, kafkatest.StartCluster(t, 4))
}

// onBothLogs runs a test over kfake and over real Kafka, whose fixture has no faults.
func onBothLogs(t *testing.T, test func(*rawFixture)) {
	t.Helper()
	kafkatest.OnBoth(t, 4, func(t *testing.T, k kafka.Config) {
		test(newRawFixtureOver(t, &kafkatest.Cluster{Config: k}))
	})
}

// newRawFixtureWith puts something between the stage and its store.
func newRawFixtureWith(t *testing.T, wrap func(store.Reader) store.Reader) *rawFixture {
	t.Helper()
	return newRawFixtureOver(t, kafkatest.StartCluster(t, 4), wrap)
}

func newRawFixtureOver(t testing.TB, cluster *kafkatest.Cluster, wrap ...func(store.Reader) store.Reader) *rawFixture {
	t.Helper()
	return &rawFixture{
		fixture: startFixtureOver(t, shortWait, cluster.Config, wrap...), cluster: cluster,
		begin: time.Now().Truncate(time.Second),
	}
}

// newFilledFixture is for runs whose raw events do not matter: an erasure of acme's thread "chat" lies there,
// and what is of nobody.
func newFilledFixture(t *testing.T, records int) *fixture {
	t.Helper()
	f := newRawFixture(t)
	f.add("acme", "chat", record.Headers{Kind: record.KindErase, Seq: -1}, "{}")
	for range records {
		f.add("nobody", "nowhere", record.Headers{Kind: record.KindEvent, Seq: -1}, "{}")
	}
	kafkatest.Produce(t, f.cluster.Config, f.log...)
	return f.fixture
}

// add puts a record on the log and returns its offset.
func (f *rawFixture) add(tenantID, thread string, h record.Headers, value string) int64 {
	f.t.Helper()
	key, err := record.ThreadKey(tenantID, thread)
	if err != nil {
		f.t.Fatal(err)
	}
	f.log = append(f.log, &kgo.Record{
		Topic: f.cluster.Config.Topics().Events, Partition: 3, Key: []byte(key), Value: []byte(value),
		Headers: kafka.Headers(h), Timestamp: f.begin.Add(time.Duration(len(f.log)) * time.Second),
	})
	return int64(len(f.log) - 1)
}

// event adds an event of acme's thread "chat" without a seq.
func (f *rawFixture) event(run, value string) int64 {
	f.t.Helper()
	return f.add("acme", "chat", record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1}, value)
}

// alone is a run that is folded by itself (fold.Runs).
type alone struct {
	run  *fold.Run
	rec  *record.Run
	from fold.Origin
}

func (a *alone) Find(*fold.Decoded) (*fold.Run, fold.Outcome, error) { return a.run, "", nil }

func (a *alone) Begin(_ *fold.Run, _ *fold.Decoded, input *agui.RunAgentInput) (*compact.Run, error) {
	return fold.Restart(a.rec, &a.from, input), nil
}

// indexed produces what was added and indexes a run of acme's thread "chat" over these offsets.
func (f *rawFixture) indexed(run, given string, at ...int64) *record.Run {
	f.t.Helper()
	return f.indexedFor("acme", "chat", run, given, nil, at...)
}

// indexedFor is indexed for any thread; change may change the record before it is indexed.
func (f *rawFixture) indexedFor(tenantID, thread, run, given string, change func(*record.Run), at ...int64) *record.Run {
	f.t.Helper()
	rec, _ := f.folded(&record.Run{
		Tenant: tenantID, ThreadID: thread, RunID: run, ClientRunID: given,
		Lineage: record.Lineage{ParentBy: record.ParentNone, BranchID: run, RootRunID: run},
	}, fold.Origin{}, at...)
	if change != nil {
		change(rec)
	}
	f.put(rec)
	return rec
}

// folded produces what was added and folds a run over these offsets. It returns the run's record and the history at its end.
func (f *rawFixture) folded(rec *record.Run, from fold.Origin, at ...int64) (*record.Run, lineage.History) {
	f.t.Helper()
	kafkatest.Produce(f.t, f.cluster.Config, f.log[f.sent:]...)
	f.sent = len(f.log)
	rec.FoldVersion, rec.Raw = compact.Version, record.Raw{Partition: 3, First: at[0], Next: at[len(at)-1] + 1}
	r := &alone{run: fold.NewRun(rec.ThreadID, rec.RunID, cmp.Or(rec.ClientRunID, rec.RunID)), rec: rec, from: from}
	loop := fold.NewLoop(r)
	for _, o := range at {
		m := f.log[o]
		if m.Offset != o {
			f.t.Fatalf("record %d lies at offset %d", o, m.Offset)
		}
		e, err := kafka.Event(m, &record.Headers{}, nil)
		if err != nil {
			f.t.Fatal(err)
		}
		if _, _, err := loop.Next(&e); err != nil {
			f.t.Fatal(err)
		}
		if n := len(rec.Raw.Ranges); n > 0 && rec.Raw.Ranges[n-1][1] == o {
			rec.Raw.Ranges[n-1][1]++
		} else {
			rec.Raw.Ranges = append(rec.Raw.Ranges, [2]int64{o, o + 1})
		}
	}
	rec, end := r.run.Record(rec, r.from, rec.Raw.First, rec.Raw.Next)
	if rec.Status == record.StatusRunning {
		rec.Open = &record.Open{Fold: json.RawMessage(`{}`)}
	}
	return rec, end
}

// lines are the values at these offsets, each with a line feed.
func (f *rawFixture) lines(at ...int64) string {
	var b strings.Builder
	for _, o := range at {
		b.Write(f.log[o].Value)
		b.WriteByte('\n')
	}
	return b.String()
}

// replays checks that a call gives back these offsets and no others.
func (f *rawFixture) replays(path string, at ...int64) {
	f.t.Helper()
	r := f.get("acme", path)
	if want := f.lines(at...); r.status != http.StatusOK || r.body != want {
		f.t.Errorf("GET %s: %d\n%swant\n%s", path, r.status, r.body, want)
	}
}

const (
	started  = `{"type":"RUN_STARTED","threadId":"chat","runId":%q}`
	finished = `{"type":"RUN_FINISHED","threadId":"chat","runId":%q}`
	custom   = `{ "type":"CUSTOM", "name":%q,	"value": 1.50 }`
)

const chatR = "/v1/threads/chat/runs/r/events"

func TestReplay_GivesBackWhatTheRecordIsMadeOf(t *testing.T) {
	for name, write := range map[string]func(f *rawFixture) (rec *record.Run, want []int64){
		"one run": func(f *rawFixture) (*record.Run, []int64) {
			at := []int64{f.event("r", fmt.Sprintf(started, "r")), f.event("r", fmt.Sprintf(custom, "a")), f.event("r", fmt.Sprintf(finished, "r"))}
			return f.indexed("r", "", at...), at
		},
		"events that name no run": func(f *rawFixture) (*record.Run, []int64) {
			at := []int64{f.event("", fmt.Sprintf(started, "r")), f.event("", fmt.Sprintf(custom, "a")), f.event("", fmt.Sprintf(finished, "r"))}
			f.event("", fmt.Sprintf(custom, "of nobody"))
			return f.indexed("r", "", at...), at
		},
		"two runs at once and another tenant's thread of the same id": func(f *rawFixture) (*record.Run, []int64) {
			var mine, other []int64
			mine = append(mine, f.event("r", fmt.Sprintf(started, "r")))
			other = append(other, f.event("s", fmt.Sprintf(started, "s")))
			for i := range 5 {
				f.add("umbrella", "chat", record.Headers{Kind: record.KindEvent, RunID: "r", Seq: -1}, fmt.Sprintf(custom, "umbrella's"))
				f.add("acme", "chat2", record.Headers{Kind: record.KindEvent, RunID: "r", Seq: -1}, fmt.Sprintf(custom, "chat2's"))
				mine = append(mine, f.event("r", fmt.Sprintf(custom, strconv.Itoa(i))))
				other = append(other, f.event("s", fmt.Sprintf(custom, strconv.Itoa(i))))
				other = append(other, f.event("", fmt.Sprintf(custom, "of the run that started last")))
			}
			mine = append(mine, f.event("r", fmt.Sprintf(finished, "r")))
			other = append(other, f.event("s", fmt.Sprintf(finished, "s")))
			f.indexed("s", "", other...)
			rec := f.indexed("r", "", mine...)
			// Ranges that were merged hold records of the others.
			rec.Raw.Ranges = [][2]int64{{rec.Raw.First, rec.Raw.Next}}
			f.put(rec)
			return rec, mine
		},
		"repeats, what is no event, and a chunk that belongs nowhere": func(f *rawFixture) (*record.Run, []int64) {
			seq := func(n int64, value string) int64 {
				return f.add("acme", "chat", record.Headers{Kind: record.KindEvent, RunID: "r", Seq: n}, value)
			}
			a := seq(0, fmt.Sprintf(started, "r"))
			b := seq(1, fmt.Sprintf(custom, "a"))
			c := seq(1, fmt.Sprintf(custom, "a"))
			d := seq(2, `{"type":"TEXT_MESSAGE_CONTENT"}`)
			e := seq(3, `{"type":"TEXT_MESSAGE_CHUNK","delta":"of which message?"}`)
			g := seq(4, fmt.Sprintf(finished, "r"))
			seq(4, fmt.Sprintf(finished, "r"))
			return f.indexed("r", "", a, b, c, d, e, g), []int64{a, b, g}
		},
		"an input beside the stream": func(f *rawFixture) (*record.Run, []int64) {
			in := f.add("acme", "chat", record.Headers{Kind: record.KindInput, RunID: "r", Seq: -1},
				`{"threadId":"chat","runId":"r","messages":[{"id":"u","role":"user","content":"x"}],"tools":[],"context":[],"state":{},"forwardedProps":{}}`)
			at := []int64{in, f.event("r", fmt.Sprintf(started, "r")), f.event("r", fmt.Sprintf(finished, "r"))}
			return f.indexed("r", "", at...), at[1:]
		},
		"a run that is still open": func(f *rawFixture) (*record.Run, []int64) {
			at := []int64{f.event("r", fmt.Sprintf(started, "r")), f.event("r", fmt.Sprintf(custom, "a"))}
			rec := f.indexed("r", "", at...)
			f.event("r", fmt.Sprintf(custom, "in no record yet"))
			return rec, at
		},
		"an end that the proxy wrote": func(f *rawFixture) (*record.Run, []int64) {
			h := record.Headers{Kind: record.KindEvent, RunID: "r", Seq: 0, Agent: "shop", Labels: []record.Label{{Key: "user", Value: "7"}}}
			a := f.add("acme", "chat", h, fmt.Sprintf(started, "r"))
			h.Seq, h.Synthetic = 1, true
			return f.indexed("r", "", a, f.add("acme", "chat", h, fmt.Sprintf(finished, "r"))), []int64{a}
		},
		"an end that the proxy wrote behind a repeat": func(f *rawFixture) (*record.Run, []int64) {
			h := record.Headers{Kind: record.KindEvent, RunID: "r", Seq: 0}
			a := f.add("acme", "chat", h, fmt.Sprintf(started, "r"))
			again := f.add("acme", "chat", h, fmt.Sprintf(started, "r"))
			h.Seq, h.Synthetic = 1, true
			return f.indexed("r", "", a, again, f.add("acme", "chat", h, fmt.Sprintf(finished, "r"))), []int64{a}
		},
		"far apart": func(f *rawFixture) (*record.Run, []int64) {
			at := []int64{f.event("r", fmt.Sprintf(started, "r"))}
			for range 2*rawSeek + 7 {
				f.event("s", fmt.Sprintf(custom, "another run's"))
			}
			at = append(at, f.event("r", fmt.Sprintf(custom, "a")))
			for range rawSeek {
				f.event("s", fmt.Sprintf(custom, "another run's"))
			}
			at = append(at, f.event("r", fmt.Sprintf(finished, "r")))
			return f.indexed("r", "", at...), at
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRawFixture(t)
			rec, want := write(f)
			f.replays(chatR, want...)
			if got := fmt.Sprintf("%x", sha256.Sum256([]byte(f.get("acme", chatR).body))); got != rec.Raw.SHA256 ||
				rec.Raw.Events != int64(len(want)) {
				t.Errorf("hash %s, record %s over %d events", got, rec.Raw.SHA256, rec.Raw.Events)
			}
			var p proofAnswer
			f.json("/v1/threads/chat/runs/r/verify", &p)
			if p.Verdict != verify.Proved {
				t.Errorf("verdict %+v", p)
			}
			f.get("umbrella", chatR).problem(t, http.StatusNotFound)
		})
	}
}

// threadOfTwo has a run r that repeats an event, and its id used again.
func threadOfTwo(f *rawFixture) (first, again []int64) {
	at := func(n int64, value string) int64 {
		return f.add("acme", "chat", record.Headers{Kind: record.KindEvent, RunID: "r", Seq: n}, value)
	}
	first = []int64{at(0, fmt.Sprintf(started, "r")), at(1, fmt.Sprintf(custom, "a")), at(1, fmt.Sprintf(custom, "a")),
		at(2, fmt.Sprintf(finished, "r"))}
	at(3, fmt.Sprintf(custom, "late"))
	again = []int64{at(0, `{"type":"RUN_STARTED","threadId":"chat","runId":"r","parentRunId":"r"}`), at(1, fmt.Sprintf(finished, "r"))}
	f.indexed("r", "", first...)
	f.indexedFor("acme", "chat", "r~2", "r", func(r *record.Run) { r.BranchID = "side" }, again...)
	return first, again
}

func TestReplay_TellsRunsOfOneIDApart(t *testing.T) {
	f := newRawFixture(t)
	first, again := threadOfTwo(f)
	folded := []int64{first[0], first[1], first[3]}
	f.replays(chatR, folded...)
	f.replays("/v1/threads/chat/runs/r~2/events", again...)
	f.replays("/v1/threads/chat/events", append(folded, again...)...)
	f.replays("/v1/threads/chat/events?branch=side", again...)
	f.get("acme", "/v1/threads/chat/events?branch=nowhere").problem(t, http.StatusNotFound)
}

func TestReplay_GivesParts(t *testing.T) { onBothLogs(t, givesParts) }

func givesParts(f *rawFixture) {
	t := f.t
	first, again := threadOfTwo(f)
	const thread = "/v1/threads/chat/events"
	f.replays(thread+"?from=3:"+strconv.FormatInt(first[2], 10), append([]int64{first[3]}, again...)...)
	f.replays(thread+"?from=3:1&to=3:3", first[1])
	f.replays(thread+"?to=3:1", first[0])
	f.replays(thread + "?from=3:999")
	f.replays(chatR + "?from=3:999")
	at := func(o int64) string { return f.log[o].Timestamp.UTC().Format(time.RFC3339) }
	f.replays(thread+"?from="+at(first[3])+"&to="+at(again[1]), first[3], again[0])
	f.replays(thread+"?from=@"+at(again[0])+"&to=end", again...)
	f.replays(thread+"?from=start&to=@"+at(first[1]), first[0])
	f.replays(thread + "?from=end")
	f.replays(thread + "?to=start")
	var starts []int64
	for _, o := range append([]int64{first[0], first[1], first[3]}, again...) {
		if strings.Contains(string(f.log[o].Value), `"RUN_STARTED"`) {
			starts = append(starts, o)
		}
	}
	f.replays(thread+"?types=RAW,RUN_STARTED", starts...)
	f.replays(thread + "?types=NO_SUCH")
	for _, bad := range []string{"types=", "types=RUN_STARTED,"} {
		f.get("acme", thread+"?"+bad).problem(t, http.StatusBadRequest)
	}
	r := f.get("acme", thread, "Accept", "text/event-stream", "Last-Event-ID", fmt.Sprintf("3:%d", again[0]))
	if want := fmt.Sprintf("id: 3:%d\ndata: %s\n\n", again[1], f.log[again[1]].Value); r.body != want {
		t.Errorf("resumed with %q, want %q", r.body, want)
	}
	for _, query := range []string{"from=2:1", "from=x", "from=@x", "from=@3:1", "to=4:1", "pace=fast", "pace=0", "pace=-1", "pace=NaN",
		"pace=1e-300", "pace=1e300", "all=yes", "branch=r&branch=s", "speed=1"} {
		f.get("acme", thread+"?"+query).problem(t, http.StatusBadRequest)
	}
	f.get("acme", chatR+"?branch=r").problem(t, http.StatusBadRequest)
}

func TestReplay_MarksWhatWasDropped(t *testing.T) {
	f := newRawFixture(t)
	threadOfTwo(f)
	f.add("acme", "chat", record.Headers{Kind: record.KindEvent, RunID: "r", Seq: -1}, `not JSON`)
	f.indexedFor("acme", "other", "r", "", nil, f.add("acme", "other", record.Headers{Kind: record.KindEvent, Seq: -1}, fmt.Sprintf(started, "r")))
	f.replays("/v1/threads/chat/events?all=true", 0, 1, 2, 3, 4, 5, 6, 7)
	f.replays(chatR+"?all=true", 0, 1, 2, 3, 4)

	want := []string{"folded", "folded", "repeat", "folded", "late", "folded", "folded", "late"}
	marked := strings.Split(strings.TrimSpace(f.get("acme", "/v1/threads/chat/events?all=true", "Accept", typeMarked).body), "\n")
	var got []string
	for i, text := range marked {
		described(t, "ReplayedEvent", text)
		var line replayLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		got = append(got, string(line.Outcome))
		value := line.Event
		if value == nil {
			value = line.Bytes
		}
		if line.Position != (record.Position{Partition: 3, Offset: int64(i)}) || !sameText(value, f.log[i].Value) ||
			!line.At.Equal(f.log[i].Timestamp) {
			t.Errorf("line %s", text)
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("outcomes %v, want %v", got, want)
	}
	r := f.get("acme", chatR+"?all=true", "Accept", "text/event-stream")
	if n := strings.Count(r.body, "event: repeat\n"); n != 1 || strings.Count(r.body, "event: ") != 2 ||
		r.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("events: %v %s", r.header, r.body)
	}
}

func sameText(a, b []byte) bool {
	strip := strings.NewReplacer(" ", "", "\t", "")
	return strip.Replace(string(a)) == strip.Replace(string(b))
}

func TestReplay_SaysWhatRetentionHasTaken(t *testing.T) {
	f := newRawFixture(t)
	threadOfTwo(f)
	topic := f.cluster.Config.Topics().Events
	if err := f.cluster.Fake.DeleteRecords(topic, 3, 2); err != nil {
		t.Fatal(err)
	}
	r := f.get("acme", chatR)
	detail := r.problem(t, http.StatusGone)
	var gone struct{ Earliest string }
	described(t, "GoneProblem", r.body)
	if err := json.Unmarshal([]byte(r.body), &gone); err != nil || gone.Earliest != "3:2" || !strings.Contains(detail, "from=3:2") {
		t.Errorf("answer %s (%v)", r.body, err)
	}
	// Whether what is left was folded nobody can tell from here.
	f.get("acme", chatR+"?from=3:2").problem(t, http.StatusGone)
	if body := f.get("acme", chatR+"?from=3:2&all=true", "Accept", typeMarked).body; strings.Count(body, `"outcome":"unknown"`) != 2 {
		t.Errorf("what is left: %s", body)
	}
	f.replays("/v1/threads/chat/runs/r~2/events", 5, 6)
	var p proofAnswer
	f.json("/v1/threads/chat/runs/r/verify", &p)
	if p.Verdict != verify.Unproved || p.Earliest == nil || p.Earliest.String() != "3:2" || p.Reason == "" || p.Raw != nil {
		t.Errorf("verdict %+v", p)
	}

	if err := f.cluster.Fake.DeleteRecords(topic, 3, int64(len(f.log))); err != nil {
		t.Fatal(err)
	}
	r = f.get("acme", "/v1/threads/chat/events")
	r.problem(t, http.StatusGone)
	if strings.Contains(r.body, "earliest") {
		t.Errorf("all is gone: %s", r.body)
	}
}

func TestReplay_KeepsThePace(t *testing.T) {
	f := newRawFixture(t)
	threadOfTwo(f) // a second between two records
	for pace, least := range map[string]time.Duration{"max": 0, "100": 30 * time.Millisecond} {
		begin := time.Now()
		f.replays(chatR+"?pace="+pace, 0, 1, 3)
		if took := time.Since(begin); took < least {
			t.Errorf("pace %s: took %v, at least %v were between the events", pace, took, least)
		}
	}
	// At its own pace the first event is out before the second is due, and a caller who leaves ends it.
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := f.open(ctx, http.MethodGet, "acme", chatR+"?pace=0.001")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	first := make([]byte, len(f.lines(0)))
	if _, err := resp.Body.Read(first); err != nil || string(first) != f.lines(0) {
		t.Errorf("first event %q: %v", first, err)
	}
	cancel()
	if _, err := resp.Body.Read(first); !errors.Is(err, context.Canceled) {
		t.Errorf("after leaving: %v", err)
	}
}

func TestReplay_MakesNoGroup(t *testing.T) {
	f := newRawFixture(t)
	threadOfTwo(f)
	for _, path := range []string{chatR, "/v1/threads/chat/events?all=true", "/v1/threads/chat/runs/r/verify",
		"/v1/threads/chat/events?from=3:1&to=" + f.begin.Add(time.Hour).UTC().Format(time.RFC3339)} {
		if r := f.get("acme", path); r.status != http.StatusOK {
			t.Errorf("GET %s: %d %s", path, r.status, r.body)
		}
	}
	adm := kafkatest.Admin(t, f.cluster.Config)
	if groups, err := adm.ListGroups(t.Context()); err != nil || len(groups) > 0 {
		t.Errorf("groups %v, %v", groups.Groups(), err)
	}
}

func TestReplay_RefusesWhatItHasNoRoomFor(t *testing.T) {
	f := newRawFixture(t)
	threadOfTwo(f)
	f.service.room.memory.Take("acme", f.service.room.memory.Alone()-rawBytes)
	if r := f.get("acme", chatR); r.header.Get("Retry-After") == "" {
		t.Errorf("answer %d %v", r.status, r.header)
	} else {
		r.problem(t, http.StatusTooManyRequests)
	}
}

func TestReplay_BreaksOffWhatItCannotComplete(t *testing.T) {
	f := newRawFixture(t)
	threadOfTwo(f)
	f.raw.quiet = 50 * time.Millisecond
	f.cluster.Fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.Fake.KeepControl()
		return nil, errors.New("away"), true
	})
	f.breaksOff(chatR, "replay broken off")
}

// breaksOff checks that an answer begins and does not end, and that the log says why.
func (f *rawFixture) breaksOff(path, why string) {
	f.t.Helper()
	resp, err := f.open(f.t.Context(), http.MethodGet, "acme", path)
	if err == nil {
		defer func() { _ = resp.Body.Close() }()
		_, err = io.ReadAll(resp.Body)
	}
	f.server.Close() // the handler has ended: its log can be read
	if log := f.fixture.log.String(); err == nil || !strings.Contains(log, why) {
		f.t.Errorf("error %v; log %s", err, log)
	}
}

func TestReplay_StopsAtARecordOfANewerVersion(t *testing.T) {
	f := newRawFixture(t)
	first := f.event("r", fmt.Sprintf(started, "r"))
	f.add("acme", "chat", record.Headers{Version: 2, Kind: record.KindEvent, RunID: "r", Seq: -1}, fmt.Sprintf(custom, "newer"))
	f.indexed("r", "", first, f.event("r", fmt.Sprintf(finished, "r")))
	f.breaksOff("/v1/threads/chat/events?all=true", "unknown record version 2, this program knows up to 1")
}

func TestReplay_AnswersHEADWithoutReading(t *testing.T) {
	f := newRawFixture(t)
	threadOfTwo(f)
	if r := f.call(http.MethodHead, "acme", chatR); r.status != http.StatusOK || r.body != "" || r.header.Get("Content-Type") != typeNDJSON {
		t.Errorf("answer %d %v %q", r.status, r.header, r.body)
	}
}
