package ingest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/tenant"
)

func TestEvents_ABodyThatStopsInsideAnEventEnds(t *testing.T) {
	d := newStage(t)
	d.svc.pace = paceLimits{first: time.Hour, event: 200 * time.Millisecond, idle: time.Hour}
	for name, tc := range map[string]struct{ headers, rest, want string }{
		"a request":       {"", "{", "an event that has begun has 200ms"},
		"a stream":        {"Accept: application/x-ndjson\r\n", "{", "an event that has begun has 200ms"},
		"a short request": {"", "", "no event came for 200ms"},
	} {
		c, err := net.Dial("tcp", d.srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: 4000\r\n\r\n%s\n%s", d.path("events"), tc.headers, ev1,
			tc.rest); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		_, err = text.ReadFrom(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), `"status":408`) || !strings.Contains(text.String(), tc.want) || !strings.Contains(text.String(), `"accepted":1`) {
			t.Errorf("%s is answered %s %s", name, resp.Status, &text)
		}
	}
	if held := d.svc.memory.Held(); held != 0 {
		t.Errorf("%d bytes are held when all is answered", held)
	}
}

func TestEvents_BytesWithoutAnEventAreRefused(t *testing.T) {
	d := newStage(t)
	for name, tc := range map[string]struct{ contentType, body string }{
		"JSON as SSE": {typeSSE, `{"error":"no such agent"}` + "\n"},
		"a comment":   {typeSSE, ": hello\n\n"},
		"blank lines": {typeNDJSON, "\n\n  \n"},
	} {
		a := d.post(tc.contentType, tc.body)
		if a.status != http.StatusBadRequest || a.Reason != reasonNoEvent || !strings.Contains(a.Detail, strings.TrimSuffix(fmt.Sprintf("%q", tc.body), `"`)) {
			t.Errorf("%s: answer is %d %s", name, a.status, a.body)
		}
	}
	if got := d.written(); len(got) != 0 {
		t.Errorf("written is %q", got)
	}
}

func TestEvents_WhatInflatesTooMuchIsRefused(t *testing.T) {
	cfg := testConfig(kafkatest.Start(t, 3))
	cfg.Memory = 32 << 20 // for a window of 8 MiB
	d := open(t, cfg)
	lines := strings.Repeat("\n", 4<<20) // zstd makes one segment of it
	for encoding, body := range map[string]string{"gzip": gzipped(t, lines), "zstd": zstandard(t, lines)} {
		a := d.do(http.MethodPost, d.path("events"), strings.NewReader(body), "Content-Encoding", encoding)
		if a.status != http.StatusRequestEntityTooLarge || a.Reason != reasonRatio {
			t.Errorf("%s: answer is %d %s", encoding, a.status, a.body)
		}
		// The first megabyte of a stream may be as alike as it likes.
		few := strings.Repeat(ev1+"\n", 1000)
		body = gzipped(t, few)
		if encoding == "zstd" {
			body = zstandard(t, few)
		}
		if a := d.do(http.MethodPost, d.path("events"), strings.NewReader(body), "Content-Encoding", encoding); a.status != http.StatusOK ||
			a.Accepted != 1000 {
			t.Errorf("%s: events that look alike are answered %d %s", encoding, a.status, a.body)
		}
	}
	if held := d.svc.memory.Held(); held != 0 {
		t.Errorf("%d bytes are held when all is answered", held)
	}
}

func TestEvents_RefuseAWindowThatIsTooLarge(t *testing.T) {
	d := newStage(t)
	var body bytes.Buffer
	w, err := zstd.NewWriter(&body, zstd.WithWindowSize(2*zstdWindow))
	if err == nil {
		_, err = w.Write([]byte(ev1 + "\n"))
	}
	if err = errors.Join(err, w.Flush(), w.Close()); err != nil { // flushed, its header says the window and not the size
		t.Fatal(err)
	}
	a := d.do(http.MethodPost, d.path("events"), &body, "Content-Encoding", "zstd")
	if a.status != http.StatusBadRequest || !strings.Contains(a.Detail, "window has 16777216 bytes") {
		t.Errorf("answer is %d %s", a.status, a.body)
	}
}

func TestEvents_WhatATenantHoldsIsBounded(t *testing.T) {
	d := newStage(t)
	n := d.svc.memory.Alone() - 4<<10
	if !d.svc.memory.Take("dev", n) {
		t.Fatal("the tenant has no share")
	}
	a := d.post(typeNDJSON, strings.Repeat(ev1+"\n", 50))
	if a.status != http.StatusTooManyRequests || a.Reason != front.ReasonMemory || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, `"limit":"memory"`) {
		t.Errorf("answer is %d %v %s", a.status, a.header, a.body)
	}
	d.svc.memory.Give("dev", n)
	if a := d.post(typeNDJSON, ev1); a.status != http.StatusOK {
		t.Errorf("afterwards: answer is %d %s", a.status, a.body)
	}
}

// A broker takes the requests of one connection one after another: of a tenant's large events as much is under way as two of the largest
// size, whatever else waits.
func TestEvents_LargeOnesOfATenantTakeTurns(t *testing.T) {
	cluster := kafkatest.StartCluster(t, 3)
	cfg := DefaultConfig(cluster.Config)
	cfg.MaxEventBytes = 2 * largeEvent
	d := open(t, cfg)
	answers := make(chan struct{})
	cluster.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.Fake.KeepControl()
		cluster.Fake.SleepControl(func() { <-answers })
		return nil, nil, false
	})
	event := `{"type":"CUSTOM","name":"n","value":"` + strings.Repeat("x", largeEvent+largeEvent/2) + `"}`
	var posted sync.WaitGroup
	for i := range 4 {
		posted.Go(func() {
			if a := d.in(t, fmt.Sprint("t", i)).post(typeNDJSON, event); a.status != http.StatusOK || a.Accepted != 1 {
				t.Errorf("the answer is %d %s", a.status, a.body)
			}
		})
	}
	d.eventually("all four are there", func() bool { return d.svc.memory.Held() > int64(4*len(event)) })
	d.eventually("two are with Kafka", func() bool { return d.svc.producer.BufferedProduceRecords() == 2 })
	if n := d.svc.large.Held(); n != int64(2*len(event)) {
		t.Errorf("%d bytes of large events are under way", n)
	}
	close(answers)
	posted.Wait()
	d.eventually("nothing is held", func() bool { return d.svc.large.Held() == 0 && d.svc.memory.Held() == 0 })
}

func TestQuotas_AreAnsweredWithTheirNames(t *testing.T) {
	cfg := testConfig(kafkatest.Start(t, 3))
	var err error
	cfg.Quotas, err = quota.Open(quota.Config{Replicas: 1,
		Stage: quota.Limits{RequestsPerSecond: 1, EventsPerSecond: 3, MaxInputBytes: 100, MaxEventBytes: 200, MaxRequestBytes: 3000}})
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, cfg)
	if a := d.post(typeNDJSON, ev1); a.status != http.StatusOK || a.header.Get("RateLimit-Policy") != `"requests_per_second";q=10;w=10` || !strings.HasPrefix(a.header.Get("RateLimit"), `"requests_per_second";r=9;t=`) {
		t.Errorf("answer is %d %v", a.status, a.header)
	}
	if a := d.post(typeNDJSON, `{"type":"CUSTOM","name":"`+strings.Repeat("n", 200)+`"}`); a.status != http.StatusRequestEntityTooLarge || a.Reason != reasonTooLarge {
		t.Errorf("an event over max_event_bytes: answer is %d %s", a.status, a.body)
	}
	if a := d.post(typeNDJSON, strings.Repeat(strings.Repeat(" ", 150)+"\n", 30)); a.status != http.StatusRequestEntityTooLarge || !strings.Contains(a.Detail, "max_request_bytes") {
		t.Errorf("a body over max_request_bytes: answer is %d %s", a.status, a.body)
	}
	if a := d.do(http.MethodPut, d.path("input"), strings.NewReader(`{"messages":[],"state":"`+strings.Repeat("x", 100)+`"}`)); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("an input over max_input_bytes: answer is %d %s", a.status, a.body)
	}
	var a answer
	for a.status != http.StatusTooManyRequests {
		a = d.post(typeNDJSON, ev1)
	}
	if a.header.Get("Retry-After") == "" || !strings.Contains(a.body, `"violated-policies":["requests_per_second"]`) {
		t.Errorf("answer is %d %v %s", a.status, a.header, a.body)
	}
}

// A body that may stay open takes one of the tenant's streams; a short one does not.
func TestQuotas_CountEveryBodyThatMayStayOpen(t *testing.T) {
	cfg := testConfig(kafkatest.Start(t, 3))
	var err error
	if cfg.Quotas, err = quota.Open(quota.Config{Replicas: 1, Stage: quota.Limits{ConcurrentStreams: 1}}); err != nil {
		t.Fatal(err)
	}
	d := open(t, cfg)
	body, feed := io.Pipe()
	first := make(chan answer)
	go func() { first <- d.do(http.MethodPost, d.path("events"), body) }()
	if _, err := io.WriteString(feed, ev1+"\n"); err != nil {
		t.Fatal(err)
	}
	for len(d.written()) == 0 { // it is under way
	}
	if a := d.do(http.MethodPost, d.path("events"), io.MultiReader(strings.NewReader(ev1))); a.status != http.StatusTooManyRequests || !strings.Contains(a.body, `"limit":"concurrent_streams"`) {
		t.Errorf("beside an open body: answer is %d %s", a.status, a.body)
	}
	if a := d.post(typeNDJSON, ev1); a.status != http.StatusOK {
		t.Errorf("a short body: answer is %d %s", a.status, a.body)
	}
	if err := feed.Close(); err != nil {
		t.Fatal(err)
	}
	if a := <-first; a.status != http.StatusOK || a.Accepted != 1 {
		t.Errorf("the first: answer is %d %s", a.status, a.body)
	}
}

// A request that waits for its tenant's quotas does not delay the process's end.
func TestQuotas_AreNotWaitedForWhenTheStageStops(t *testing.T) {
	cfg := testConfig(kafkatest.Start(t, 3))
	var err error
	// A burst of 2 events, then one in 4 s.
	if cfg.Quotas, err = quota.Open(quota.Config{Replicas: 4, Stage: quota.Limits{EventsPerSecond: 1}}); err != nil {
		t.Fatal(err)
	}
	d := open(t, cfg)
	if a := d.post(typeNDJSON, ev1+"\n"+ev1); a.status != http.StatusOK {
		t.Fatalf("answer is %d %s", a.status, a.body)
	}
	begun := time.Now()
	time.AfterFunc(100*time.Millisecond, d.svc.Stop)
	a := d.do(http.MethodPut, d.path("input"), strings.NewReader(`{"threadId":"t1","runId":"r1","messages":[]}`))
	if took := time.Since(begun); a.status != http.StatusServiceUnavailable || took > 3*time.Second {
		t.Errorf("after %v the answer is %d %s", took, a.status, a.body)
	}
}

// expiring are credentials that are valid until a moment.
type expiring time.Time

func (e expiring) Authenticate(*http.Request) (tenant.Identity, error) {
	if until := time.Time(e); time.Now().Before(until) {
		return tenant.Identity{Tenant: "dev", Scopes: []tenant.Scope{tenant.ScopePublish}, Expires: until}, nil
	}
	return tenant.Identity{}, tenant.ErrExpired
}

// A body that has come whole lies in buffers, and waits there for its quota: none of it is published with credentials that have ended.
func TestEvents_PublishNothingAfterTheCredentialsEnd(t *testing.T) {
	t.Parallel()
	cfg := testConfig(kafkatest.Start(t, 3))
	var err error
	if cfg.Quotas, err = quota.Open(quota.Config{Replicas: 4, Stage: quota.Limits{EventsPerSecond: 1}}); err != nil {
		t.Fatal(err)
	}
	d := open(t, cfg)
	const life = 3 * time.Second // of 15 events two are let through at once, the third after 4 s
	d.svc.front.Auth = expiring(time.Now().Add(life))
	begun := time.Now()
	a := d.post(typeNDJSON, strings.Repeat(ev1+"\n", 15))
	if a.status != http.StatusUnauthorized || a.Reason != front.ReasonAuth || a.Accepted != 2 || time.Since(begun) > kafkatest.Timeout {
		t.Errorf("after %v the answer is %d %s", time.Since(begun), a.status, a.body)
	}
}
