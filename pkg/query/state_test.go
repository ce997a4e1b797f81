package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// stateReply is what the tests look at of a state answer.
type stateReply struct {
	RunID, Status string
	N, Total      int
	Messages      []struct{ ID, Content string }
	State         json.RawMessage
	Step          *stepReply
	Steps         []stepReply
	Next          *int
}

type stepReply struct {
	N                             int
	Position, Kind, Type, Outcome string
	Time                          time.Time
	Event                         json.RawMessage
	Change                        struct {
		Messages []struct{ Op, MessageID, Path, Text string }
		State    json.RawMessage
	}
}

// said is what the messages say.
func (r stateReply) said() string {
	var all []string
	for _, m := range r.Messages {
		all = append(all, m.ID+":"+m.Content)
	}
	return strings.Join(all, " ") + " " + string(r.State)
}

// state asks for the state of run r; answers are held to their description.
func (f *rawFixture) state(query string) stateReply {
	f.t.Helper()
	var r stateReply
	described(f.t, "State", f.json("/v1/threads/chat/runs/r/state"+query, &r).body)
	return r
}

// spaced is an event that an encoder of JSON would write in another way.
const spaced = `{"type": "TEXT_MESSAGE_CHUNK", "messageId":"a", "delta":"Hello", "rawEvent":{"id":12345678901234567890, "cost":1.50}}`

// talk is a run r of acme's thread "chat": an input beside the stream, and events among which lie those of others.
func (f *rawFixture) talk() (rec *record.Run, at []int64) {
	f.t.Helper()
	f.event("other", fmt.Sprintf(started, "other"))
	at = append(at, f.add("acme", "chat", record.Headers{Kind: record.KindInput, RunID: "r", Seq: -1},
		`{"threadId":"chat","runId":"r","messages":[{"id":"u","role":"user","content":"Hi"}],"state":{"cart":{"total":0}}}`))
	for _, value := range []string{
		fmt.Sprintf(started, "r"),
		spaced,
		`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/cart/total","value":3}]}`,
		`{"type":"NONSENSE`,
		`{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":", you."}`,
		fmt.Sprintf(finished, "r"),
	} {
		f.add("umbrella", "chat", record.Headers{Kind: record.KindEvent, RunID: "r", Seq: -1}, `{"type":"CUSTOM","name":"n","value":"only umbrella knows"}`)
		at = append(at, f.event("r", value))
	}
	return f.indexed("r", "", at...), at
}

func TestState_IsThatBehindTheEventWhichIsAskedFor(t *testing.T) {
	onBothLogs(t, func(f *rawFixture) {
		_, at := f.talk()
		want := []string{
			`u:Hi {"cart":{"total":0}}`, `u:Hi {"cart":{"total":0}}`, `u:Hi a:Hello {"cart":{"total":0}}`, `u:Hi a:Hello {"cart":{"total":3}}`,
			`u:Hi a:Hello {"cart":{"total":3}}`, `u:Hi a:Hello, you. {"cart":{"total":3}}`, `u:Hi a:Hello, you. {"cart":{"total":3}}`,
		}
		types := []string{"", "RUN_STARTED", "TEXT_MESSAGE_CHUNK", "STATE_DELTA", "", "TEXT_MESSAGE_CHUNK", "RUN_FINISHED"}
		for n, said := range want {
			position := record.Position{Partition: 3, Offset: at[n]}.String()
			came := f.begin.Add(time.Duration(at[n]) * time.Second).UTC()
			for _, name := range []string{fmt.Sprint(n), position, "@" + came.Format(time.RFC3339),
				came.Add(time.Millisecond).Format(time.RFC3339Nano)} {
				if name != fmt.Sprint(n) && name != position && n == len(want)-1 && strings.Contains(name, ".") {
					continue // behind its end
				}
				r := f.state("?at=" + url.QueryEscape(name))
				if r.said() != said || r.N != n || r.Total != 6 || r.Status != "finished" {
					t.Errorf("at %s (step %d of %d): %s, want %s", name, r.N, r.Total, r.said(), said)
				}
				if s := r.Step; s == nil || s.N != n || s.Position != position || s.Type != types[n] || !s.Time.Equal(came) {
					t.Errorf("at %s: the step is %+v", name, s)
				}
			}
		}
		// The last step is that at the end, which is the history.
		var h stateReply
		f.json("/v1/threads/chat/runs/r/history", &h)
		for _, query := range []string{"", "?at=end", "?at=6"} {
			if r := f.state(query); r.said() != h.said() {
				t.Errorf("state%s is %s, the history %s", query, r.said(), h.said())
			}
		}
		if r := f.state("?at=start"); r.N != 0 || len(r.Step.Change.Messages) != 1 || r.Step.Kind != "input" || string(r.Step.Change.State) == "[]" {
			t.Errorf("the start is %+v", r.Step)
		}
		if s := f.state("?at=5").Step.Change.Messages; len(s) != 1 || s[0].Op != "append" || s[0].MessageID != "a" || s[0].Path != "/content" ||
			s[0].Text != ", you." {
			t.Errorf("step 5 changes %+v", s)
		}
		for _, step := range []stepReply{*f.state("?at=2").Step, f.state("?from=1&limit=2").Steps[1]} {
			if string(step.Event) != spaced {
				t.Errorf("step 2 is %s, which came as %s", step.Event, spaced)
			}
		}
		if s := f.state("?at=4").Step; s.Outcome != "malformed" || s.Event != nil || len(s.Change.Messages) > 0 {
			t.Errorf("what is no event is %+v", s)
		}
		var tip stateReply
		if f.json("/v1/threads/chat/state?at=2", &tip); tip.RunID != "r" || tip.said() != want[2] {
			t.Errorf("of the tip %q: %s", tip.RunID, tip.said())
		}
	})
}

// A request that waits for the log, or for another one that reads the run, leaves its slot to others.
func TestState_WaitsForTheLogWithoutASlot(t *testing.T) {
	f := newRawFixture(t)
	f.indexed("r", "", f.event("r", fmt.Sprintf(started, "r")), f.event("r", `{"type":"CUSTOM","name":"n","value":1}`))
	f.oneSlot()
	f.raw.quiet = kafkatest.Timeout
	var answers atomic.Bool
	f.cluster.Fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.Fake.KeepControl()
		if answers.Load() {
			return nil, nil, false
		}
		return nil, errors.New("away"), true
	})
	const path = "/v1/threads/chat/runs/r/state"
	held := f.service.room.memory.Held
	first := make(chan reply, 1)
	go func() { first <- f.get("acme", path) }()
	second := f.leavesTheSlot(path, func() bool { return held() >= rawBytes+2*(requestBytes+memoryStep) }) // both have read their rows
	answers.Store(true)
	for _, r := range []reply{<-first, <-second} {
		if r.status != http.StatusOK {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
}

func TestState_GivesPagesOfSteps(t *testing.T) {
	f := newRawFixture(t)
	f.talk()
	whole := f.state("?from=0")
	if whole.N != -1 || len(whole.Messages) != 0 || len(whole.Steps) != 7 || whole.Next != nil || whole.Step != nil {
		t.Fatalf("from the start: behind step %d, %d steps, next %v", whole.N, len(whole.Steps), whole.Next)
	}
	var paged []stepReply
	for from := "?limit=2"; from != ""; {
		r := f.state(from)
		paged, from = append(paged, r.Steps...), ""
		if r.N >= 0 && r.said() != f.state(fmt.Sprint("?at=", r.N)).said() {
			t.Errorf("before step %d: %s", r.N+1, r.said())
		}
		if r.Next != nil {
			from = fmt.Sprintf("?from=%d&limit=2", *r.Next)
		}
	}
	if !reflect.DeepEqual(paged, whole.Steps) {
		t.Errorf("paged\n%+v\nwhole\n%+v", paged, whole.Steps)
	}
	for query, n := range map[string]int{"?from=3:5&limit=1": 2,
		"?from=@" + f.begin.Add(6*time.Second).UTC().Format(time.RFC3339) + "&limit=1": 3, "?from=end": 6, "?limit=1": 0} {
		if r := f.state(query); r.N != n-1 || r.Steps[0].N != n {
			t.Errorf("%s begins with step %d", query, r.N+1)
		}
	}
}

// What a run says is no longer than a page may be.
func TestState_EndsAPageThatIsLong(t *testing.T) {
	f := newRawFixture(t)
	at := []int64{f.event("r", fmt.Sprintf(started, "r"))}
	for range 6 {
		at = append(at, f.event("r", fmt.Sprintf(`{"type":"CUSTOM","name":"n","value":%q}`, strings.Repeat("x", 900_000))))
	}
	f.indexed("r", "", at...)
	var r stateReply
	f.json("/v1/threads/chat/runs/r/state?from=0", &r)
	if n := len(r.Steps); n < 3 || r.Next == nil || *r.Next != n {
		t.Errorf("%d steps, next %v", n, r.Next)
	}
}

func TestState_FollowsARunThatGoesOn(t *testing.T) {
	f := newRawFixture(t)
	f.begin = f.begin.Add(-5 * time.Second)
	at := []int64{f.event("r", fmt.Sprintf(started, "r")), f.event("r", `{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":"one"}`)}
	f.indexed("r", "", at...)
	if r := f.state(""); r.Total != 2 || r.said() != "a:one {}" || r.Status != "running" {
		t.Fatalf("%d steps: %s", r.Total, r.said())
	}
	more := f.event("r", `{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":" two"}`)
	kafkatest.Produce(t, f.cluster.Config, f.log[f.sent:]...)
	f.sent = len(f.log)
	if r := f.state(""); r.Total != 3 || r.said() != "a:one two {}" {
		t.Errorf("ahead of its record: %d steps: %s", r.Total, r.said())
	}
	if r := f.state(fmt.Sprintf("?at=3:%d", more)); r.N != 3 {
		t.Errorf("its step is %d", r.N)
	}
	if r := f.state("?at=@" + time.Now().Add(-time.Second).UTC().Format(time.RFC3339)); r.N != 3 {
		t.Errorf("by now its step is %d", r.N)
	}
	end := f.event("r", fmt.Sprintf(finished, "r"))
	f.indexed("r", "", append(at, more, end)...)
	if r := f.state(""); r.Total != 4 || r.Status != "finished" {
		t.Errorf("at its end: %d steps, %s", r.Total, r.Status)
	}
}

func TestState_SaysWhatIsWrong(t *testing.T) {
	f := newRawFixture(t)
	_, at := f.talk()
	f.indexed("other", "", 0)
	kafkatest.Produce(t, f.cluster.Config, f.log[f.sent:]...)
	stamp := func(t time.Time) string { return "@" + t.UTC().Format(time.RFC3339) }
	for query, want := range map[string]struct {
		status int
		says   string
	}{
		"?at=x":                       {400, "the number of a step, a position such as 3:1024"},
		"?at=-1":                      {400, "the number of a step"},
		"?at=3:x":                     {400, "the number of a step"},
		"?at=1&from=2":                {400, "one or the other"},
		"?at=1&limit=2":               {400, "one or the other"},
		"?from=0&limit=0":             {400, "limit must be"},
		"?from=0&limit=1001":          {400, "limit must be"},
		"?at=2:1":                     {400, "this thread lies on partition 3"},
		"?at=7":                       {404, "to 6"},
		"?from=7":                     {404, "to 6"},
		"?at=3:0":                     {404, "not an event of run"},
		fmt.Sprint("?at=3:", at[2]+1): {404, "step 2 is at 3:5; step 3 is at 3:7"},
		"?at=3:999":                   {404, "step 6 is at 3:13"},
		"?at=" + stamp(f.begin.Add(-1*time.Hour)): {404, "began at"},
		"?at=" + stamp(f.begin.Add(1*time.Hour)):  {404, "the last event of run"},
		"?to=3":                                   {400, "unknown parameter"},
	} {
		if detail := f.get("acme", "/v1/threads/chat/runs/r/state"+query).problem(t, want.status); !strings.Contains(detail, want.says) {
			t.Errorf("%s: %s, want %q", query, detail, want.says)
		}
	}
	for query, says := range map[string]string{"?at=3:999": "yet", "?at=" + stamp(f.begin.Add(time.Hour)): "is in the future",
		"?at=2": "to 1 so far"} {
		if detail := f.get("acme", "/v1/threads/chat/runs/other/state"+query).problem(t, 404); !strings.Contains(detail, says) {
			t.Errorf("of a run that goes on, %s: %s, want %q", query, detail, says)
		}
	}
	f.get("acme", "/v1/threads/chat/runs/nobody/state?fresh=no").problem(t, 404)
	f.get("umbrella", "/v1/threads/chat/runs/r/state").problem(t, 404)
}

func TestState_RefusesARunOfTooManyEvents(t *testing.T) {
	f := newRawFixture(t)
	f.talk()
	kafkatest.Produce(t, f.cluster.Config, f.log[f.sent:]...)
	f.service.cache = newCache(cacheParts*300, f.service.metrics) // two steps of a run, without their values
	if detail := f.get("acme", "/v1/threads/chat/runs/r/state?at=1").problem(t, http.StatusConflict); !strings.Contains(detail, "too many events") {
		t.Errorf("the answer says %q", detail)
	}
}

func TestState_SaysWhatIsGone(t *testing.T) {
	f := newRawFixture(t)
	_, at := f.talk()
	if err := f.cluster.Fake.DeleteRecords(f.cluster.Config.Topics().Events, 3, at[2]); err != nil {
		t.Fatal(err)
	}
	r := f.get("acme", "/v1/threads/chat/runs/r/state?at=1")
	if detail := r.problem(t, http.StatusGone); !strings.Contains(detail, "ask for the history") || !strings.Contains(r.body, `"earliest":"3:5"`) {
		t.Errorf("the answer is %s", r.body)
	}
}

// A run whose record is there and no event of it, is as good as one that has not begun.
func TestState_OfARunWithItsInputAlone(t *testing.T) {
	f := newRawFixture(t)
	at := f.add("acme", "chat", record.Headers{Kind: record.KindInput, RunID: "r", Seq: -1}, `{"threadId":"chat","runId":"r","messages":[]}`)
	f.indexedFor("acme", "chat", "r", "", func(rec *record.Run) {
		rec.Status, rec.Open = record.StatusRunning, &record.Open{Fold: json.RawMessage(`{}`), Pending: true}
	}, at)
	if detail := f.get("acme", "/v1/threads/chat/runs/r/state").problem(t, 404); !strings.Contains(detail, "has no state yet") {
		t.Error(detail)
	}
}

func TestState_ReadsARunOnce(t *testing.T) {
	f := newRawFixture(t)
	f.talk()
	var wait sync.WaitGroup
	for n := range 7 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			if r := f.state(fmt.Sprint("?at=", n)); r.N != n {
				t.Errorf("step %d is %d", n, r.N)
			}
		}()
	}
	wait.Wait()
	reads := func(source string) float64 {
		return testutil.ToFloat64(f.service.metrics.timelineReads.WithLabelValues(source))
	}
	if read, had := reads(readFromLog), reads(readFromCache); read != 1 || had != 6 {
		t.Errorf("read %v times from the log and %v times from what is at hand", read, had)
	}
	f.service.cfg.Wait = freshWait // for the end of the log, too
	// Others have runs of the same ids.
	f.get("umbrella", "/v1/threads/chat/runs/r/state").problem(t, 404)
	if _, err := f.store.Erasure(t.Context(), "acme", "chat"); err == nil {
		t.Fatal("it is erased")
	}
	// Erased, it is not found, whatever is at hand.
	if err := f.store.Write(t.Context(), []store.Entry{{Partition: 3, Version: f.version + 1, Tenant: "acme", ThreadID: "chat",
		RunID: "r"}}); err != nil {
		t.Fatal(err)
	}
	f.get("acme", "/v1/threads/chat/runs/r/state").problem(t, 404)
	if cache := f.service.cache; len(cache.byKey) > 0 || cache.bytes.Held() != 0 {
		t.Errorf("%d bytes of what was erased stay", cache.bytes.Held())
	}
}

// texts puts a run of acme's thread "chat" on the log whose one message has so many parts of some length: steps 2 to n+1.
func (f *rawFixture) texts(n, length int) {
	f.t.Helper()
	at := []int64{f.event("r", fmt.Sprintf(started, "r"))}
	for range n {
		at = append(at, f.event("r", `{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":"`+strings.Repeat("x", length)+`"}`))
	}
	f.indexed("r", "", append(at, f.event("r", fmt.Sprintf(finished, "r")))...)
}

// A request goes on from the cursor of the one before, and what that holds is counted: text of events that the timeline has given up too.
func TestState_KeepsACursorAndCountsIt(t *testing.T) {
	const length = 256 << 10
	f := newRawFixture(t)
	f.texts(4, length)
	cache := newCache(32<<20, f.service.metrics)
	f.service.cache = cache
	f.state("?at=3")
	held := cache.byKey[cacheKey{"acme", "chat", "r"}]
	first, bare := held.cursor, held.reader.Bytes()
	if first == nil || first.N() != 3 {
		t.Fatalf("it keeps the cursor %+v", first)
	}
	if got := cache.bytes.Held(); got != held.size() || got < bare+4*length {
		t.Errorf("a cursor with %d bytes of text beside %d of the timeline counts as %d", 2*length, bare, got)
	}
	if f.state("?at=4"); held.cursor != first || first.N() != 4 {
		t.Errorf("the next step does not go on from it: %+v", held.cursor)
	}
	if f.state("?from=2&limit=2"); held.cursor == first || held.cursor.N() != 3 {
		t.Errorf("steps before it leave the cursor %+v", held.cursor)
	}
}

func TestTimelines_ForgetWhatNobodyLooksAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(1000, newMetrics(prometheus.NewRegistry(), 0, nil))
		use := func(run string) {
			t.Helper()
			c, err := cache.acquire(t.Context(), cacheKey{"acme", "t", run}, "")
			if err != nil {
				t.Fatal(err)
			}
			cache.release(c, 100)
		}
		// The sweep runs on a timer's goroutine, so the cache is looked at under its lock.
		holds := func() (runs int, bytes int64, idle bool) {
			cache.mu.Lock()
			defer cache.mu.Unlock()
			return len(cache.byKey), cache.bytes.Held(), cache.sweep == nil
		}
		use("old")
		use("new")
		time.Sleep(timelineIdle - time.Second)
		use("new")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if runs, bytes, _ := holds(); runs != 1 || bytes != 100 {
			t.Errorf("%d runs of %d bytes stay", runs, bytes)
		}
		time.Sleep(2 * timelineIdle)
		synctest.Wait()
		if runs, _, idle := holds(); runs != 0 || !idle {
			t.Errorf("%d runs stay for good", runs)
		}
	})
}

func TestState_OfAChildStartsFromItsParent(t *testing.T) {
	f := newRawFixture(t)
	parent, _ := f.talk()
	in := f.add("acme", "chat", record.Headers{Kind: record.KindInput, RunID: "c", Seq: -1},
		`{"threadId":"chat","runId":"c","messages":[{"id":"u","role":"user","content":"Hi"},{"id":"a","role":"assistant","content":"Hello, you."},{"id":"u2","role":"user","content":"More"}]}`)
	from := []int64{in, f.event("c", fmt.Sprintf(started, "c")), f.event("c", fmt.Sprintf(finished, "c"))}
	kafkatest.Produce(t, f.cluster.Config, f.log[f.sent:]...)
	f.sent = len(f.log)
	c := child(parent, "c", 0, record.ParentExplicit, msg("u2", "user", "More"))
	c.FoldVersion, c.Raw = compact.Version, record.Raw{First: from[0], Next: from[2] + 1, Events: 2, NextSeq: -1}
	f.put(c)
	var r stateReply
	f.json("/v1/threads/chat/runs/c/state?from=0", &r)
	if want := `u:Hi a:Hello, you. {"cart":{"total":3}}`; r.said() != want || len(r.Steps) != 3 {
		t.Errorf("before its start: %s, want %s", r.said(), want)
	}
	if changed := r.Steps[0].Change.Messages; len(changed) != 1 || changed[0].MessageID != "u2" ||
		r.Steps[0].Position != fmt.Sprint("3:", in) {
		t.Errorf("its start is %+v", r.Steps[0])
	}
}

func TestTimelines_AreFairToTenants(t *testing.T) {
	cache := newCache(1000, newMetrics(prometheus.NewRegistry(), 0, nil))
	put := func(tenant, run string, bytes int64) {
		t.Helper()
		c, err := cache.acquire(t.Context(), cacheKey{tenant, "t", run}, "")
		if err != nil {
			t.Fatal(err)
		}
		cache.release(c, bytes)
	}
	has := func() string {
		var all []string
		for k := range cache.byKey {
			all = append(all, k.tenant+"/"+k.run)
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	put("quiet", "1", 300)
	for i := range 20 {
		put("loud", fmt.Sprint(i), 200)
	}
	if got := has(); got != "loud/17 loud/18 loud/19 quiet/1" || cache.bytes.Held() != 900 {
		t.Errorf("%d bytes of %s", cache.bytes.Held(), got)
	}
	put("loud", "17", 200)
	put("third", "1", 400)
	if got := has(); got != "loud/17 quiet/1 third/1" || cache.bytes.Held() != 900 {
		t.Errorf("%d bytes of %s", cache.bytes.Held(), got)
	}
}

// Stepping works on for nobody.
func TestStepping_EndsWhenTheCallerHasLeft(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	leave()
	s := stepping{c: &call{Call: &front.Call{R: httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)}}}
	if _, _, err := s.next(nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the next step of a request without a caller: %v", err)
	}
}
