package query

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// thread returns a thread whose records lie on partition 3, as those of the fixture do.
func (f *rawFixture) thread() string {
	for n := 0; ; n++ {
		name := fmt.Sprint("live-", n)
		if key, err := record.ThreadKey("acme", name); err != nil || record.Partition([]byte(key), 4) == 3 {
			return name
		}
	}
}

// produce writes what was added.
func (f *rawFixture) produce() {
	f.t.Helper()
	kafkatest.Produce(f.t, f.cluster.Config, f.log[f.sent:]...)
	f.sent = len(f.log)
}

// stream opens acme's live stream; lines are those of its answer.
func (f *rawFixture) stream(path, lastID string) (lines *bufio.Scanner) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), kafkatest.Timeout)
	f.t.Cleanup(cancel)
	resp, err := f.open(ctx, http.MethodGet, "acme", path, "Last-Event-ID", lastID)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = resp.Body.Close() }) // it was cut
	lines = bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20)
	return lines
}

// find reads lines up to one that holds a text, and returns the last id before it.
func find(t *testing.T, lines *bufio.Scanner, text string) (lastID string) {
	t.Helper()
	for lines.Scan() {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			lastID = id
		}
		if strings.Contains(lines.Text(), text) {
			return lastID
		}
	}
	t.Fatalf("the stream ends without %q: %v", text, lines.Err())
	return ""
}

// A deadline of HTTP/2 ends a stream even if nobody writes: none is left between two events.
func TestStream_MayBeSilentOverHTTP2(t *testing.T) {
	f := newRawFixture(t)
	f.service.front.Stall = 100 * time.Millisecond
	thread := f.thread()
	event := func(value string) {
		f.add("acme", thread, record.Headers{Kind: record.KindEvent, RunID: "r", Seq: -1}, value)
		f.produce()
	}
	event(fmt.Sprintf(started, "r"))
	server := httptest.NewUnstartedServer(nil)
	server.Config, server.EnableHTTP2 = front.NewServer(f.service.Handler()), true
	server.StartTLS()
	t.Cleanup(server.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v1/threads/"+thread+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Tenant", "acme")
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	find(t, lines, "RUN_STARTED")
	time.Sleep(3 * f.service.front.Stall)
	event(fmt.Sprintf(finished, "r"))
	find(t, lines, "RUN_FINISHED")
	if resp.ProtoMajor != 2 {
		t.Errorf("the answer is %s", resp.Proto)
	}
}

// A live stream ends with the RUN_ERROR in place of a malformed end, which no client could read.
func TestStream_EndsARunWhoseEndIsMalformed(t *testing.T) {
	f := newRawFixture(t)
	thread := f.thread()
	for _, value := range []string{fmt.Sprintf(started, "r"), `{"type":"RUN_FINISHED","runId":"r"}`} {
		f.add("acme", thread, record.Headers{Kind: record.KindEvent, RunID: "r", Seq: -1}, value)
	}
	f.produce()
	lines := f.stream("/v1/threads/"+thread+"/stream", "")
	find(t, lines, "RUN_STARTED")
	find(t, lines, `"type":"RUN_ERROR","message":"the agent ended the run with an event that no client can read: RUN_FINISHED: threadId is missing","code":"agent-no-end"`)
}

// What a stream holds counts as its tenant's memory, also as its run grows. Where there is no room it ends with an id to resume from.
func TestStream_EndsWhereThereIsNoRoom(t *testing.T) {
	f := newRawFixture(t)
	memory, thread := f.service.room.memory, f.thread()
	event := func(value string) {
		f.add("acme", thread, record.Headers{Kind: record.KindEvent, RunID: "r", Seq: -1}, value)
	}
	event(fmt.Sprintf(started, "r"))
	event(`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`)
	f.produce()
	path := "/v1/threads/" + thread + "/runs/r/stream"
	lines := f.stream(path, "")
	find(t, lines, "TEXT_MESSAGE_START")
	if held := memory.HeldBy("acme"); held < streamBytes+2*foldedAtLeast || held > 1<<20 {
		t.Errorf("a stream of a run that has begun counts for %d bytes", held)
	}
	delta := fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":%q}`, strings.Repeat("x", 300_000))
	event(delta)
	f.produce()
	find(t, lines, "xxx")
	if held := memory.HeldBy("acme"); held < 600_000 {
		t.Errorf("a fold with 300,000 characters counts for %d bytes", held)
	}
	rest := int64(0)
	for n := int64(1 << 24); n > 0; n /= 2 {
		for memory.Take("acme", n) {
			rest += n
		}
	}
	event(delta)
	f.produce()
	id := find(t, lines, "is used up; resume from the last id")
	if r := f.get("acme", path); r.status != http.StatusTooManyRequests || !strings.Contains(r.body, `"limit":"memory"`) {
		t.Errorf("another stream: %d %s", r.status, r.body)
	}
	memory.Give("acme", rest)
	event(fmt.Sprintf(finished, "r"))
	f.produce()
	if last := find(t, f.stream(path, id), "RUN_FINISHED"); id != "3:3" || last != "3:4" {
		t.Errorf("it ends at %s, and resumes to %s", id, last)
	}
	f.server.Close() // handlers have ended
	if held := f.service.room.held(); held != nothingHeld {
		t.Error(held)
	}
	if n := testutil.ToFloat64(f.service.metrics.ended.WithLabelValues(endRoom)); n != 1 {
		t.Errorf("%v streams ended for want of room", n)
	}
}

// foldedAtLeast is less than one event takes in a fold.
const foldedAtLeast = 20

// The proxy's caller had an event that Skein could not fold: the stream goes on behind it, also with events that have no number.
func TestStream_ResumesBehindAnEventThatWasNotFolded(t *testing.T) {
	f := newRawFixture(t)
	thread := f.thread()
	event := func(seq int64, value string) {
		f.add("acme", thread, record.Headers{Kind: record.KindEvent, RunID: "r", Seq: seq}, value)
	}
	event(0, fmt.Sprintf(started, "r"))
	event(1, `{"type":"CUSTOM","name":"one","value":1}`)
	event(2, `{"type":"CUSTOM"}`)
	event(-1, `{"type":"CUSTOM","name":"unnumbered","value":1}`)
	event(3, `{"type":"CUSTOM","name":"three","value":1}`)
	event(-1, fmt.Sprintf(finished, "r"))
	f.produce()
	lines := f.stream("/v1/threads/"+thread+"/runs/r/stream", "seq:2")
	var got []string
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			got = append(got, data)
		}
	}
	if text := strings.Join(got, " "); len(got) != 3 || !strings.Contains(text, "unnumbered") || !strings.Contains(text, "three") ||
		!strings.Contains(text, "RUN_FINISHED") {
		t.Errorf("behind seq:2 came %s", text)
	}
}

// A reader that takes nothing is ended, and holds nothing any more. What came to it has an id behind which it goes on.
func TestStream_EndsAReaderThatNeverReads(t *testing.T) {
	f := newRawFixture(t)
	f.service.front.Stall = 100 * time.Millisecond
	const events = 40 // of 50 KB: more than what lies in the buffers of a connection
	offsets := []int64{f.event("r", fmt.Sprintf(started, "r"))}
	for n := range events {
		offsets = append(offsets, f.event("r", fmt.Sprintf(`{"type":"CUSTOM","name":"%d","value":%q}`, n, strings.Repeat("x", 50_000))))
	}
	f.indexed("r", "", append(offsets, f.event("r", fmt.Sprintf(finished, "r")))...)

	conn, err := net.Dial("tcp", f.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // it was cut
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "GET /v1/threads/chat/runs/r/stream HTTP/1.1\r\nHost: query\r\nTenant: acme\r\nLast-Event-ID: 3:0\r\nConnection: close\r\n\r\n")
	ended := f.service.metrics.ended.WithLabelValues(endSlow)
	for deadline := time.Now().Add(4 * kafkatest.Timeout); testutil.ToFloat64(ended) == 0; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the reader is not ended")
		}
	}
	if n := testutil.ToFloat64(f.service.metrics.streams); n != 0 {
		t.Errorf("%v streams are open", n)
	}

	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body) // it breaks off
	_ = resp.Body.Close()
	blocks := strings.Split(string(text), "\n\n")
	last, n := "", -1 // the id of the last event that is there as a whole, and its number
	for _, block := range blocks[:len(blocks)-1] {
		if id, _, ok := strings.Cut(strings.TrimPrefix(block, "id: "), "\ndata: "); ok {
			last = id
			n++
		}
	}
	if n < 0 || n >= events-1 {
		t.Fatalf("%d of %d events had come", n+1, events)
	}
	f.service.front.Stall = time.Minute
	var rest strings.Builder
	for lines := f.stream("/v1/threads/chat/runs/r/stream", last); lines.Scan(); {
		rest.WriteString(lines.Text())
	}
	if got := strings.Count(rest.String(), `"type":"CUSTOM"`); got != events-1-n || !strings.Contains(rest.String(), fmt.Sprintf(`"name":"%d"`, n+1)) || !strings.Contains(rest.String(), "RUN_FINISHED") {
		t.Errorf("behind event %d, %s, came %d, want %d and the end", n, last, got, events-1-n)
	}
}

func TestConnect_WaitsForItsBodyForAWhile(t *testing.T) {
	f := newRawFixture(t)
	f.service.front.Stall = 100 * time.Millisecond
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", f.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // its answer was read
	if _, err := io.WriteString(conn, "POST /v1/connect HTTP/1.1\r\nHost: skein\r\nTenant: acme\r\nContent-Length: 9\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // only read
	if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "not there within 100ms") {
		t.Errorf("a body that does not come is answered %s %s, %v", resp.Status, text, err)
	}
	if n := f.service.room.memory.Held(); n != 0 {
		t.Errorf("%d bytes are held for it", n)
	}
}

// What connect reads counts as its tenant's memory, from before the first byte to the last.
func TestConnect_CountsItsBody(t *testing.T) {
	f := newRawFixture(t)
	memory := f.service.room.memory
	post := func(body io.Reader, length int64) chan string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.server.URL+"/v1/connect", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Tenant", "acme")
		req.ContentLength = length
		answer := make(chan string, 1)
		go func() {
			resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
			if err != nil {
				answer <- err.Error()
				return
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			answer <- fmt.Sprint(resp.StatusCode, " ", string(text), " ", err)
		}()
		return answer
	}
	const large = 1 << 20
	slow, rest := io.Pipe()
	first := post(slow, large)
	deadline := time.Now().Add(kafkatest.Timeout)
	for memory.HeldBy("acme") < decodedInput*large {
		if time.Now().After(deadline) {
			t.Fatalf("a body of %d bytes counts for %d", large, memory.HeldBy("acme"))
		}
		time.Sleep(time.Millisecond)
	}
	taken := int64(0)
	for n := int64(1 << 24); n > 0; n /= 2 {
		for memory.Take("acme", n) {
			taken += n
		}
	}
	if got := <-post(strings.NewReader("{}"), 2); !strings.HasPrefix(got, "429 ") || !strings.Contains(got, `"limit":"memory"`) {
		t.Errorf("where there is no room the answer is %s", got)
	}
	memory.Give("acme", taken)
	if _, err := rest.Write([]byte(strings.Repeat(" ", large))); err != nil {
		t.Fatal(err)
	}
	if got := <-first; !strings.HasPrefix(got, "400 ") {
		t.Errorf("a body of white space gets %s", got)
	}
	if err := rest.Close(); err != nil {
		t.Fatal(err)
	}
	f.server.Close() // handlers have ended
	if held := f.service.room.held(); held != nothingHeld {
		t.Error(held)
	}
}

// A stream that has to look for its place in the log while Kafka is away says so, and goes on.
func TestStream_SkipsOnceKafkaIsBack(t *testing.T) {
	f := newRawFixture(t)
	thread := f.thread()
	for range 3 {
		f.add("acme", thread, record.Headers{Kind: record.KindEvent, RunID: "r", Seq: -1}, fmt.Sprintf(started, "r"))
	}
	f.produce()
	if err := f.cluster.Fake.DeleteRecords(f.cluster.Config.Topics().Events, 3, f.log[2].Offset); err != nil {
		t.Fatal(err)
	}
	c := f.acmes(thread)
	s, err := c.newStream(t.Context(), "", joining())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	s.partition, s.out.begun = 3, true
	f.cluster.Fake.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		return nil, errors.New("away"), true
	})
	if err := s.skip(); err != nil {
		t.Errorf("it ends: %v", err)
	}
	if said := c.W.(*httptest.ResponseRecorder).Body.String(); !strings.Contains(said, "cannot be read now") || s.through == 0 {
		t.Errorf("it says %q and is through %d", said, s.through)
	}
}

// A stream that is far behind folds for long without waiting for anything: many of a tenant's would have all processors.
func TestStream_CatchesUpOnTheTenantsSlots(t *testing.T) {
	f := newRawFixture(t)
	f.service.cfg.StreamHeartbeat = 20 * time.Millisecond
	thread := f.thread()
	f.add("acme", thread, record.Headers{Kind: record.KindEvent, RunID: "r", Seq: -1}, fmt.Sprintf(started, "r"))
	for range 1_000 {
		f.add("acme", thread, record.Headers{Kind: record.KindEvent, RunID: "r", Seq: -1}, `{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"x"}`)
	}
	f.produce()
	var answers atomic.Bool
	f.cluster.Fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.Fake.KeepControl()
		if answers.Load() {
			return nil, nil, false
		}
		return nil, errors.New("the connection is cut"), true
	})
	lines := f.stream("/v1/threads/"+thread+"/runs/r/stream", "")
	find(t, lines, ":") // it has opened the thread, and waits for records
	slots, taken := f.service.room.slots, int64(0)
	for slots.Take("acme", 1) {
		taken++
	}
	answers.Store(true)
	for beats := 0; beats < 100; { // two seconds
		if !lines.Scan() {
			t.Fatalf("the stream ends: %v", lines.Err())
		}
		switch line := lines.Text(); {
		case strings.HasPrefix(line, ":"):
			beats++
		case strings.HasPrefix(line, "data:"):
			t.Fatalf("the stream has caught up beside others that have all of the tenant's slots: %.60s", line)
		}
	}
	slots.Give("acme", taken)
	find(t, lines, "TEXT_MESSAGE")
	if held := f.service.room.held(); !strings.HasPrefix(held, "0 slots") {
		t.Errorf("a stream that has caught up holds %s", held)
	}
}

// What a batch of records begins may rest on a large history. To read that takes a turn of its own, as everywhere.
func TestStream_ReadsALargeHistoryWhileItCatchesUp(t *testing.T) {
	f := newRawFixture(t)
	thread := f.thread()
	event := func(run, value string) int64 {
		return f.add("acme", thread, record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1}, value)
	}
	at := []int64{event("parent", fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":"parent"}`, thread))}
	for i := range 4 {
		at = append(at, event("parent", fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m%d","role":"assistant","delta":%q}`, i, strings.Repeat("x", 1<<20))))
	}
	at = append(at, event("parent", fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":"parent"}`, thread)))
	f.indexedFor("acme", thread, "parent", "", nil, at...)
	event("child", fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":"child","parentRunId":"parent"}`, thread))
	event("child", `{"type":"TEXT_MESSAGE_CHUNK","messageId":"c","role":"assistant","delta":"of the child"}`)
	f.produce()
	find(t, f.stream("/v1/threads/"+thread+"/runs/child/stream", ""), "of the child")
	if held := f.service.room.held(); !strings.HasPrefix(held, "0 slots") {
		t.Errorf("a stream that has caught up holds %s", held)
	}
}

// An agent names another thread when its run starts, and another run when it ends: a client gets the ids of the run.
func TestStream_HasTheIdsOfItsRun(t *testing.T) {
	f := newRawFixture(t)
	thread := f.thread()
	event := func(value string) {
		f.add("acme", thread, record.Headers{Kind: record.KindEvent, RunID: "r", Seq: -1}, value)
	}
	event(`{"type":"RUN_STARTED","threadId":"another","runId":"r"}`)
	f.produce()
	path := "/v1/threads/" + thread + "/runs/r/stream"
	lines := f.stream(path, "")
	find(t, lines, fmt.Sprintf(`data: {"threadId":%q,"type":"RUN_STARTED","runId":"r"}`, thread))
	event(`{"type":"RUN_FINISHED","threadId":"another","runId":"another"}`)
	f.produce()
	end := fmt.Sprintf(`data: {"threadId":%q,"runId":"r","type":"RUN_FINISHED"}`, thread)
	find(t, lines, end)
	find(t, f.stream(path, ""), end)
}

// A producer that publishes over HTTP follows its run's stream, where it hears that somebody wants the run to stop.
func TestStream_TellsARunsReadersOfARequestToStopIt(t *testing.T) {
	f := newRawFixture(t)
	thread := f.thread()
	for _, run := range []string{"r", "other"} {
		f.add("acme", thread, record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1}, fmt.Sprintf(started, run))
	}
	f.produce()
	lines := f.stream("/v1/threads/"+thread+"/runs/r/stream", "")
	find(t, lines, `"runId":"r"`)
	requests := []struct{ run, value string }{{"other", "{}"}, {"r", "{}"}, {"", `{"before":0}`}, {"", "{}"}}
	for i, of := range requests {
		f.add("acme", thread, record.Headers{Kind: record.KindCancel, RunID: of.run, Seq: -1}, of.value)
		f.add("acme", thread, record.Headers{Kind: record.KindEvent, RunID: "r", Seq: -1}, fmt.Sprintf(`{"type":"CUSTOM","name":"behind","value":%d}`, i))
	}
	f.produce()
	told := ""
	for behind := 0; behind < len(requests) && lines.Scan(); {
		switch {
		case strings.Contains(lines.Text(), "stop requested"):
			told += "stop "
		case strings.Contains(lines.Text(), "behind"):
			told += strconv.Itoa(behind) + " "
			behind++
		}
	}
	if told != "0 stop 1 2 stop 3 " {
		t.Errorf("came %q, want the requests for r and for the thread's runs, before their events", told)
	}
}
