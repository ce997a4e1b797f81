package query

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/tail"
)

// A reader that takes nothing is ended, and holds nothing any more. What came to it has an id behind which it goes on.
func TestStream_EndsAReaderThatNeverReads(t *testing.T) {
	f := newRawFixture(t)
	cfg := tail.DefaultConfig(f.cluster.Config)
	cfg.Logger, cfg.Registerer = slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	var err error
	if f.service.tail, err = tail.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.service.tail.Close)
	f.service.cfg.Stall = 100 * time.Millisecond
	const events = 200 // of 50 KB: more than what lies in the buffers of a connection
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
	ended := f.service.streams.metrics.ended.WithLabelValues(endSlow)
	for deadline := time.Now().Add(4 * kafkatest.Timeout); testutil.ToFloat64(ended) == 0; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the reader is not ended")
		}
	}
	if n := testutil.ToFloat64(f.service.streams.metrics.open); n != 0 || f.service.room.streams.Held() != 0 {
		t.Errorf("%v streams are open, %d places taken", n, f.service.room.streams.Held())
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
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.server.URL+"/v1/threads/chat/runs/r/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Tenant", "acme")
	req.Header.Set("Last-Event-ID", last)
	f.service.cfg.Stall = time.Minute
	again, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(again.Body)
	if err := errors.Join(err, again.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(rest), `"type":"CUSTOM"`); got != events-1-n || !strings.Contains(string(rest), fmt.Sprintf(`"name":"%d"`, n+1)) || !strings.Contains(string(rest), "RUN_FINISHED") {
		t.Errorf("behind event %d, %s, came %d, want %d and the end", n, last, got, events-1-n)
	}
}
