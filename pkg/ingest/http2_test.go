package ingest

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/front"
)

// overHTTP2 is the stage over TLS, with a client that speaks HTTP/2 alone.
func (d *stage) overHTTP2(t *testing.T) *stage {
	t.Helper()
	of := *d
	of.t, of.srv = t, httptest.NewUnstartedServer(nil)
	of.srv.Config, of.srv.EnableHTTP2 = front.NewServer(d.svc.Handler()), true
	of.srv.StartTLS()
	t.Cleanup(of.srv.Close)
	of.client = of.srv.Client()
	return &of
}

// A deadline of HTTP/2 ends a stream even if nobody reads or writes: none may be left between two events, on either side.
func TestStreams_MayBeSilentOverHTTP2(t *testing.T) {
	t.Parallel()
	const limit = 200 * time.Millisecond
	b := startBehind(t, proxyConfig(t), nil, func(w http.ResponseWriter, r *http.Request) {
		answers("data: "+begin+"\n\n")(w, r)
		time.Sleep(3 * limit)
		answers("data: "+finished+"\n\n")(w, r)
	})
	b.svc.front.Stall, b.svc.pace = limit, paceLimits{first: time.Minute, event: limit, idle: time.Hour}
	d := b.in(t, "t2").overHTTP2(t)

	k := d.talk(t, typeNDJSON)
	k.say(ev1 + "\n")
	k.wants("acknowledged to line 1, 1 events")
	time.Sleep(3 * limit)
	k.say(ev2 + "\n")
	k.wants("acknowledged to line 2, 2 events")
	if err := k.body.Close(); err != nil || k.resp.ProtoMajor != 2 {
		t.Fatalf("%v over %s", err, k.resp.Proto)
	}
	k.ends("done: 2 events, 0 refused")

	resp, err := d.client.Post(d.srv.URL+"/v1/agents/helper", typeJSON, strings.NewReader(inputOf("r9")))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(bufio.NewReader(resp.Body)); err != nil || !strings.Contains(string(text), finished) {
		t.Errorf("the proxied run reads %s, %v", text, err)
	}
}

// An upload takes as long as its events take to come.
func TestEvents_ALongUploadOverHTTP2(t *testing.T) {
	t.Parallel()
	d := newStage(t).overHTTP2(t)
	d.svc.pace = paceLimits{first: time.Second, event: time.Second, idle: time.Second}
	in, out := io.Pipe()
	go func() {
		for range 15 {
			time.Sleep(100 * time.Millisecond)
			_, _ = io.WriteString(out, strings.Repeat(ev1+"\n", 40)) // the answer tells
		}
		_ = out.Close()
	}()
	if a := d.do(http.MethodPost, d.path("events"), in); a.status != http.StatusOK || a.Accepted != 15*40 {
		t.Errorf("the answer is %d %s", a.status, a.body)
	}
}
