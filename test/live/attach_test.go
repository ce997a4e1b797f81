package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/test/site"
)

const input = `{"threadId":%q,"runId":%q,"state":{},"messages":[{"id":"u1","role":"user","content":"Hello"}],"tools":[],"context":[],"forwardedProps":{}}`

// said are events of a run that says so many words.
func said(thread, run string, words int) []string {
	events := []string{
		fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run),
		fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","messageId":"%s-a","role":"assistant"}`, run),
	}
	for i := range words {
		events = append(events, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"%s-a","delta":"%d "}`, run, i))
	}
	return append(events, fmt.Sprintf(`{"type":"TEXT_MESSAGE_END","messageId":"%s-a"}`, run), fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run))
}

func typesOf(events []string) string {
	var types []string
	for _, ev := range events {
		_, rest, _ := strings.Cut(ev, `"type":"`)
		name, _, _ := strings.Cut(rest, `"`)
		types = append(types, name)
	}
	return strings.Join(types, " ")
}

// One clear line for an id that cannot be gone on from.
func TestAttach_RefusesIDsThatAreNotItsOwn(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), options{})
	for _, run := range []string{"a", "b"} {
		s.publish("chat", run, said("chat", run, 2)...)
	}
	s.publish("other", "a", said("other", "a", 2)...)
	s.publish("chat", "open", said("chat", "open", 3)[:3]...)
	// A stream of a run that is not there yet has begun before its events turn out to have no numbers.
	waits := s.attach(0, runPath("chat", "later")+"/stream", "seq:1")
	for _, run := range []string{"a", "b"} {
		s.status("chat", run, "finished")
	}
	for _, tc := range []struct {
		path, id string
		status   int
		says     string
	}{
		{runPath("chat", "a"), "7:0", 400, "is not an event of this run"},
		{runPath("chat", "a"), "0:8", 400, "is not an event of this run"},   // of run b
		{runPath("chat", "b"), "0:3", 400, "is not an event of this run"},   // of run a
		{runPath("chat", "a"), "0:999", 400, "is not an event of this run"}, // of the future, or another topic set
		{runPath("chat", "open"), "0:3", 400, "is not an event of this run"},
		{runPath("chat", "open"), "0:999", 400, "has nothing at 0:999 yet"},
		{runPath("chat", "none"), "0:3", 400, "is not an event of this run"},
		{"/v1/threads/chat", "0:13", 400, "is not an event of this thread"}, // of another thread
		{"/v1/threads/chat", "0:999", 400, "has nothing at 0:999 yet"},
		{"/v1/threads/chat", "1:1", 400, "is not an event of this thread"},
		{"/v1/threads/chat", "seq:1", 400, "seq numbers the events of one run"},
		{"/v1/threads/chat", "yesterday", 400, "neither a position such as 3:1024"},
		{"/v1/threads/chat", "0:-1", 400, "neither a position such as 3:1024"},
		{"/v1/threads/chat", "seq:", 400, "is not the number of an event"},
		{runPath("chat", "a"), "seq:1", 400, "have no sequence numbers"},
		{runPath("chat", "open"), "seq:1", 400, "have no sequence numbers"},
		{runPath("chat", "a"), "0:5", 204, ""},
		{runPath("chat", "a"), "0:5:end", 204, ""},
	} {
		r := s.try(0, tc.path+"/stream", tc.id)
		if text := r.refused(tc.status); !strings.Contains(text, tc.says) {
			t.Errorf("%s with %s: %s, want %q", tc.path, tc.id, text, tc.says)
		}
		r.close()
	}
	s.publish("chat", "later", said("chat", "later", 3)[:3]...)
	for {
		f, ok := waits.next()
		if !ok {
			t.Fatal("the stream ends without a word")
		}
		if f.data != "" {
			t.Fatalf("the stream gives %+v", f)
		}
		if strings.Contains(f.comment, "have no sequence numbers") {
			break
		}
	}
}

// malformed is a record of a run that is no event.
func malformed(t *testing.T, k kafka.Config, thread, run string) *kgo.Record {
	t.Helper()
	key, err := record.ThreadKey("acme", thread)
	if err != nil {
		t.Fatal(err)
	}
	return &kgo.Record{Topic: k.Topics().Events, Key: []byte(key), Value: []byte(`{"type":"TEXT_MESSAGE_CONTENT"}`),
		Headers: kafka.Headers(record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1})}
}

// Runs that overlap come one after another, in the order of their starts, each whole: a client lets no second RUN_STARTED into a run.
func TestAttach_GivesRunsThatOverlapOneAfterAnother(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), options{})
	all := map[string][]string{"a": said("chat", "a", 3), "b": said("chat", "b", 3), "c": said("chat", "c", 3)}
	s.publish("chat", "a", all["a"][:2]...)
	r := s.attach(0, "/v1/threads/chat/stream", "")
	r.until("0:1")
	s.publish("chat", "b", all["b"][:3]...) // b begins in a, and ends behind it
	s.publish("chat", "a", all["a"][2:]...)
	s.publish("chat", "c", all["c"]...) // c begins and ends in b
	s.publish("chat", "b", all["b"][3:]...)
	var got []string
	for len(got) == 0 || !strings.Contains(got[len(got)-1], `"runId":"c"`) || !strings.Contains(got[len(got)-1], "RUN_FINISHED") {
		f, ok := r.event()
		if !ok {
			t.Fatalf("the stream ends with %s", got)
		}
		got = append(got, f.data)
	}
	text := strings.Join(got, "\n")
	if !strings.HasPrefix(text, strings.Join(all["a"][2:], "\n")+"\n"+all["b"][0]) {
		t.Errorf("a does not go on to its end before b begins:\n%s", text)
	}
	for _, run := range []string{"b", "c"} {
		_, of, _ := strings.Cut(text, all[run][0])
		if run == "b" {
			of, _, _ = strings.Cut(of, all["c"][0])
		}
		says := ""
		for line := range strings.Lines(of) {
			if strings.HasPrefix(line, "{") {
				says += textOf(line, run+"-a")
			}
		}
		if strings.Count(of, "RUN_FINISHED") != 1 || !strings.Contains(of, all[run][len(all[run])-1]) || says != "0 1 2 " {
			t.Errorf("of run %s came\n%s", run, of)
		}
	}
}

// A reader that has had everything so far is answered at once, and not at the next event or heartbeat.
func TestAttach_AnswersAtOnceWhereNothingHasCome(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), options{query: func(c *query.Config) { c.StreamHeartbeat = time.Hour }})
	s.publish("chat", "r", said("chat", "r", 2)[:3]...)
	for _, path := range []string{runPath("chat", "r"), "/v1/threads/chat"} {
		if f, ok := s.attach(0, path+"/stream", "0:2").next(); !ok || f.id != "0:2" {
			t.Errorf("%s begins with %+v", path, f)
		}
	}
}

// numbered publishes events of a run with their numbers.
func (s *live) numbered(thread, run string, events []string, from, to int) {
	s.t.Helper()
	var lines []string
	for i := from; i < to; i++ {
		lines = append(lines, fmt.Sprintf(`{"seq":%d,"event":%s}`, i, events[i]))
	}
	if status, answer := s.send(http.MethodPost, s.ingest+runPath(thread, run)+"/events", "application/vnd.skein.events+ndjson",
		strings.Join(lines, "\n")); status != http.StatusOK {
		s.t.Fatalf("%d %s", status, answer)
	}
}

func TestAttach_GoesOnBehindAnEventOfTheProxy(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), options{})
	events := said("chat", "r", 5)
	numbered := func(from, to int) { s.numbered("chat", "r", events, from, to) }
	early := s.attach(0, runPath("chat", "r")+"/stream", "seq:2") // the proxy did not wait for Kafka
	numbered(0, 5)
	late := s.attach(0, runPath("chat", "r")+"/stream", "seq:2")
	numbered(5, len(events))
	over := func(r *reader) {
		t.Helper()
		if got, want := strings.Join(r.rest(), "\n"), strings.Join(events[3:], "\n"); got != want {
			t.Errorf("behind seq:2 came\n%s\nwant\n%s", got, want)
		}
	}
	over(early)
	over(late)
	s.status("chat", "r", "finished")
	over(s.attach(0, runPath("chat", "r")+"/stream", "seq:2"))
	s.try(0, runPath("chat", "r")+"/stream", "seq:8").refused(http.StatusNoContent)
	s.try(0, runPath("chat", "r")+"/stream", "seq:9").refused(http.StatusBadRequest)
}

// Retention has deleted the first events of a run: a reader that stopped among them is told to join, and can.
func TestAttach_RefusesAnIDFromBeforeRetention(t *testing.T) {
	s := start(t, kafkatest.StartCluster(t, 1).Config, options{queries: 2})
	events := said("chat", "r", 5)
	s.publish("chat", "r", events...)
	s.status("chat", "r", "finished") // by the other query, so that this one has followed nothing
	adm := kafkatest.Admin(t, s.kafka)
	below := kadm.Offsets{}
	below.AddOffset(s.kafka.Topics().Events, 0, 4, -1)
	if _, err := adm.DeleteRecords(t.Context(), below); err != nil {
		t.Fatal(err)
	}
	if text := s.try(1, runPath("chat", "r")+"/stream", "0:2").refused(http.StatusGone); !strings.Contains(text,
		"older than skein.events keeps") {
		t.Error(text)
	}
	if got, want := strings.Join(s.attach(1, runPath("chat", "r")+"/stream", "0:4").rest(), "\n"),
		strings.Join(events[5:], "\n"); got != want {
		t.Errorf("after 0:4 came\n%s\nwant\n%s", got, want)
	}
	if rest := s.attach(1, runPath("chat", "r")+"/stream",
		"").rest(); typesOf(rest) != "RUN_STARTED MESSAGES_SNAPSHOT STATE_SNAPSHOT RUN_FINISHED" {
		t.Errorf("a join gets %s", typesOf(rest))
	}
}

func TestAttach_EndsWhereTheThreadIsErased(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), options{})
	s.publish("chat", "r", said("chat", "r", 5)[:4]...)
	r := s.attach(0, runPath("chat", "r")+"/stream", "")
	if f, ok := r.event(); !ok || !strings.Contains(f.data, "RUN_STARTED") {
		t.Fatalf("%+v", f)
	}
	if status, answer := s.send(http.MethodDelete, s.ingest+"/v1/threads/chat", "", ""); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	rest := r.rest()
	if last := rest[len(rest)-1]; !strings.Contains(last, `"code":"skein-erased"`) {
		t.Errorf("the stream ends with %s", last)
	}
	site.Eventually(t, "the erasure is indexed", func() (string, bool) {
		again := s.try(0, runPath("chat", "r")+"/stream", r.lastID)
		defer again.close()
		return again.resp.Status, again.resp.StatusCode == http.StatusGone
	})
	input := fmt.Sprintf(input, "chat", "r2")
	if status, answer := s.send(http.MethodPost, s.queries[0]+"/v1/connect", "application/json", input); status != http.StatusGone {
		t.Errorf("connect: %d %s", status, answer)
	}
	s.publish("chat", "r2", said("chat", "r2", 1)...)
	if status, answer := s.send(http.MethodGet, s.queries[0]+"/v1/threads/chat/changes?message=r-a", "", ""); status != http.StatusGone {
		t.Errorf("changes of an erased message: %d %s", status, answer)
	}
}

// A reader whose run is silent has its heartbeats, also while another run of the thread goes on.
func TestAttach_BeatsWhileAnotherRunGoesOn(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), options{query: func(c *query.Config) { c.StreamHeartbeat = 200 * time.Millisecond }})
	s.publish("chat", "a", said("chat", "a", 1)[:2]...)
	r := s.attach(0, runPath("chat", "a")+"/stream", "")
	r.until("0:1")
	events := said("chat", "b", 1000)
	s.publish("chat", "b", events[:2]...)
	beat := make(chan bool, 1)
	go func() {
		f, ok := r.next()
		beat <- ok && f.data == ""
	}()
	for _, e := range events[2:] { // more often than the heartbeat
		s.publish("chat", "b", e)
		select {
		case ok := <-beat:
			if !ok {
				t.Error("what came is no heartbeat")
			}
			return
		default:
		}
	}
	t.Error("no heartbeat came")
}

func TestAttach_GivesTheEndOfARunThatWasGivenUp(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), options{idleLimit: 2 * time.Second,
		query: func(c *query.Config) { c.StreamHeartbeat = 50 * time.Millisecond }})
	s.publish("chat", "r", said("chat", "r", 5)[:4]...)
	r := s.attach(0, runPath("chat", "r")+"/stream", "")
	rest := r.rest()
	if last := rest[len(rest)-1]; !strings.Contains(last, `"code":"skein-abandoned"`) || r.lastID != "0:3:end" {
		t.Errorf("the stream ends with %s, id %s", last, r.lastID)
	}
	again := s.attach(0, runPath("chat", "r")+"/stream", "0:3") // cut before the end
	if rest := again.rest(); len(rest) != 1 || !strings.Contains(rest[0], "skein-abandoned") {
		t.Errorf("then came %s", rest)
	}
	s.try(0, runPath("chat", "r")+"/stream", "0:3:end").refused(http.StatusNoContent)
	if rest := s.attach(0, runPath("chat", "r")+"/stream",
		"").rest(); typesOf(rest) != "RUN_STARTED MESSAGES_SNAPSHOT STATE_SNAPSHOT RUN_ERROR" {
		t.Errorf("who joins gets %s", typesOf(rest))
	}
	s.numbered("numbered", "r", said("numbered", "r", 5), 0, 4)
	s.status("numbered", "r", "abandoned")
	for id, want := range map[string]string{"seq:3": "RUN_ERROR", "seq:1": "TEXT_MESSAGE_CONTENT TEXT_MESSAGE_CONTENT RUN_ERROR"} {
		if got := typesOf(s.attach(0, runPath("numbered", "r")+"/stream", id).rest()); got != want {
			t.Errorf("behind %s came %s, want %s", id, got, want)
		}
	}
}

func TestAttach_EndsAtItsLongestLifeAndSaysSo(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), options{query: func(c *query.Config) {
		c.StreamLife, c.StreamHeartbeat = 2*time.Second, 50*time.Millisecond
	}})
	r := s.attach(0, "/v1/threads/chat/stream", "")
	var comments []string
	for {
		f, ok := r.next()
		if !ok {
			break
		}
		comments = append(comments, f.comment)
	}
	if n := len(comments); n < 3 || !strings.Contains(comments[n-1], "longest life") || r.lastID != "join" {
		t.Errorf("the stream said %q, and its last id is %q", comments, r.lastID)
	}
}

func TestAttach_GoesOnOnceKafkaIsBack(t *testing.T) {
	cluster := kafkatest.StartCluster(t, 1)
	wire := cluster.Wire()
	s := start(t, cluster.Config, options{follow: &wire.Config, query: func(c *query.Config) { c.Tail.Away = 1500 * time.Millisecond }})
	events := said("chat", "r", 5)
	s.publish("chat", "r", events[:4]...)
	r := s.attach(0, runPath("chat", "r")+"/stream", "")
	r.until("0:3")
	wire.Decide(func(kafkatest.Request) kafkatest.Fate { return kafkatest.CutBefore })
	if f, ok := r.next(); !ok || !strings.Contains(f.comment, "Kafka does not answer") {
		t.Fatalf("while Kafka is away the stream says %+v", f)
	}
	s.publish("chat", "r", events[4:]...)
	wire.Decide(nil)
	if got, want := strings.Join(r.rest(), "\n"), strings.Join(events[4:], "\n"); got != want {
		t.Errorf("then came\n%s\nwant\n%s", got, want)
	}
}

// away is a store that does not answer for a while.
type away struct {
	store.Reader
	is *atomic.Bool
}

func unlessAway[T any](a away, read func() (T, error)) (T, error) {
	if a.is.Load() {
		var none T
		return none, errors.New("the store is away")
	}
	return read()
}

func (a away) Run(ctx context.Context, tenant, thread, run string) (store.Run, error) {
	return unlessAway(a, func() (store.Run, error) { return a.Reader.Run(ctx, tenant, thread, run) })
}

func (a away) IndexedTo(ctx context.Context, tenant string) (map[int32]int64, error) {
	return unlessAway(a, func() (map[int32]int64, error) { return a.Reader.IndexedTo(ctx, tenant) })
}

func (a away) Thread(ctx context.Context, tenant, thread string) ([]store.Run, error) {
	return unlessAway(a, func() ([]store.Run, error) { return a.Reader.Thread(ctx, tenant, thread) })
}

func (a away) Lineage(ctx context.Context, tenant, thread string) ([]store.Run, error) {
	return unlessAway(a, func() ([]store.Run, error) { return a.Reader.Lineage(ctx, tenant, thread) })
}

func (a away) Contents(ctx context.Context, tenant, thread string, runs []store.Run) (map[string]store.Content, error) {
	return unlessAway(a, func() (map[string]store.Content, error) { return a.Reader.Contents(ctx, tenant, thread, runs) })
}

func (a away) Holding(ctx context.Context, tenant, thread string, ids []string) (map[string]int64, error) {
	return unlessAway(a, func() (map[string]int64, error) { return a.Reader.Holding(ctx, tenant, thread, ids) })
}

func (a away) Erasure(ctx context.Context, tenant, thread string) (store.Erasure, error) {
	return unlessAway(a, func() (store.Erasure, error) { return a.Reader.Erasure(ctx, tenant, thread) })
}

func TestAttach_WaitsForTheStore(t *testing.T) {
	var gone atomic.Bool
	s := start(t, kafkatest.Start(t, 1), options{reader: func(r store.Reader) store.Reader { return away{r, &gone} }})
	one, two := said("chat", "one", 5), said("chat", "two", 2)
	s.publish("chat", "one", one[:4]...)
	r := s.attach(0, "/v1/threads/chat/stream", "")
	r.until("0:3")
	gone.Store(true)
	s.try(0, "/v1/threads/chat/stream", "").refused(http.StatusServiceUnavailable)
	s.publish("chat", "one", one[4:]...)
	for range one[4:] { // the run that is followed goes on
		if f, ok := r.event(); !ok || f.id == "" {
			t.Fatalf("%+v", f)
		}
	}
	s.publish("chat", "two", two...)
	for {
		f, ok := r.next()
		if !ok {
			t.Fatal("the stream is over")
		}
		if strings.Contains(f.comment, "cannot be read now") {
			break
		}
	}
	gone.Store(false)
	if f, ok := r.event(); !ok || f.data != two[0] {
		t.Errorf("then came %+v", f)
	}
}

// While the lineage store is away a reader goes on behind the event that it has had; one that joins is refused, and so is all that asks for
// lineage, with the reason.
func TestAttach_GoesOnWithoutTheStore(t *testing.T) {
	var gone atomic.Bool
	s := start(t, kafkatest.Start(t, 1), options{reader: func(r store.Reader) store.Reader { return away{r, &gone} }})
	events := said("chat", "r", 5)
	s.publish("chat", "r", events[:4]...)
	s.publish("chat", "other", said("chat", "other", 1)[:2]...) // at 4 and 5
	kafkatest.Produce(t, s.kafka, malformed(t, s.kafka, "chat", "r"))
	s.publish("erased", "r", said("erased", "r", 1)[:3]...) // from 7 to 9
	if status, answer := s.send(http.MethodDelete, s.ingest+"/v1/threads/erased", "", ""); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	again := said("again", "r", 1)
	again[0] = `{"type":"RUN_STARTED","threadId":"again","runId":"r","parentRunId":"r"}`
	s.publish("again", "r", said("again", "r", 1)...) // behind the erasure, from 11 to 15
	s.publish("again", "r", again[:2]...)             // its second run with this id: r~2
	gone.Store(true)
	const reason = "the lineage store does not answer"
	for _, path := range []string{"/v1/threads/chat/lineage", "/v1/threads/chat", runPath("chat", "r"), runPath("chat", "r") + "/history"} {
		if status, answer := s.send(http.MethodGet, s.queries[0]+path, "", ""); status != http.StatusServiceUnavailable ||
			!strings.Contains(answer, reason) {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	for _, tc := range []struct {
		path, id string
		status   int
		says     string
	}{
		{runPath("chat", "r"), "", 503, reason},
		{runPath("chat", "r"), "seq:1", 503, reason},
		{"/v1/threads/chat", "0:2", 503, reason},
		{runPath("chat", "r"), "0:5", 503, reason}, // whose it is the store would say
		{runPath("chat", "r"), "7:2", 400, "is not an event of this run"},
		{runPath("chat", "r"), "0:99", 400, "has nothing at 0:99 yet"},
		{runPath("erased", "r"), "0:8", 410, "was erased"},
	} {
		if text := s.try(0, tc.path+"/stream", tc.id).refused(tc.status); !strings.Contains(text, tc.says) {
			t.Errorf("%s with %q: %s, want %q", tc.path, tc.id, text, tc.says)
		}
	}
	r := s.attach(0, runPath("chat", "r")+"/stream", "0:1")
	for _, want := range events[2:4] {
		if f, ok := r.event(); !ok || f.data != want {
			t.Fatalf("%+v, want %s", f, want)
		}
	}
	s.publish("chat", "r", events[4:]...)
	if got, want := strings.Join(r.rest(), "\n"), strings.Join(events[4:], "\n"); got != want {
		t.Errorf("then came\n%s\nwant\n%s", got, want)
	}
	s.try(0, runPath("chat", "r")+"/stream", r.lastID).refused(http.StatusNoContent)
	const late = `{"type":"RUN_ERROR","message":"flush failed"}`
	s.publish("chat", "r", late)
	r = s.attach(0, runPath("chat", "r")+"/stream", r.lastID)
	if got := strings.Join(r.rest(), "\n"); got != late {
		t.Errorf("of a run that failed after its end came %s", got)
	}
	s.try(0, runPath("chat", "r")+"/stream", r.lastID).refused(http.StatusNoContent)

	r = s.attach(0, runPath("again", "r~2")+"/stream", "0:16")
	s.publish("again", "r", again[2:]...)
	if got, want := strings.Join(r.rest(), "\n"), strings.Join(again[1:], "\n"); got != want {
		t.Errorf("of the second run with an id came\n%s\nwant\n%s", got, want)
	}
}

// Many come at once. Beyond its tenant's share of memory readers are told when to come again, the others are served, and what one gives up
// is taken.
func TestAttach_WhereTooManyComeAtOnce(t *testing.T) {
	const come = 800
	s := start(t, kafkatest.Start(t, 4), options{query: func(c *query.Config) { c.Memory = 32 << 20 }})
	s.publish("chat", "r", said("chat", "r", 3)[:4]...)
	var under sync.WaitGroup
	var mu sync.Mutex
	var in []*reader
	refused := 0
	for range come {
		under.Go(func() {
			r := s.try(0, runPath("chat", "r")+"/stream", "")
			mu.Lock()
			defer mu.Unlock()
			switch {
			case r.resp.StatusCode == http.StatusOK:
				in = append(in, r)
			case r.resp.StatusCode != http.StatusTooManyRequests || r.resp.Header.Get("Retry-After") == "":
				t.Errorf("%s %v", r.resp.Status, r.resp.Header)
			default:
				refused++
			}
		})
	}
	under.Wait()
	if len(in) < 40 || refused == 0 || len(in)+refused != come {
		t.Fatalf("%d of %d are served and %d refused", len(in), come, refused)
	}
	const leave = 8 // a new reader reads the thread's rows first, and takes memory for that
	for _, r := range in[:leave] {
		r.close()
	}
	var next *reader
	site.Eventually(t, "the place is free", func() (string, bool) {
		next = s.try(0, runPath("chat", "r")+"/stream", "")
		return next.resp.Status, next.resp.StatusCode == http.StatusOK
	})
	s.publish("chat", "r", said("chat", "r", 3)[4:]...)
	for _, r := range append(in[leave:], next) {
		if rest := r.rest(); !strings.HasSuffix(typesOf(rest), "TEXT_MESSAGE_END RUN_FINISHED") {
			t.Errorf("a reader gets %s", typesOf(rest))
		}
	}
}
