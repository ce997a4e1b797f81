package live

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/store"
)

// get returns the answer to a read, which must be a success.
func (s *live) get(path string) string {
	s.t.Helper()
	status, answer := s.send(http.MethodGet, s.queries[0]+path, "", "")
	if status != http.StatusOK {
		s.t.Errorf("GET %s: %d %s", path, status, answer)
	}
	return answer
}

// within fails unless an answer has all these texts within a second.
func (s *live) within(began time.Time, path string, texts ...string) {
	s.t.Helper()
	for {
		answer, lacks := s.get(path), ""
		for _, text := range texts {
			if !strings.Contains(answer, text) {
				lacks = text
			}
		}
		took := time.Since(began)
		if took > time.Second {
			s.t.Errorf("GET %s lacks %s after %v: %s", path, lacks, took, answer)
		}
		if lacks == "" || took > time.Second {
			return
		}
	}
}

// With the intervals of production, an open run and each of its events are in all reads within a second, whatever else is open.
func TestFresh_OpenRunsAreReadAsFarAsTheirEvents(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), options{production: true})
	for i := range 1000 {
		thread := fmt.Sprintf("beside-%d", i)
		s.publish(thread, "r", said(thread, "r", 3)[:4]...)
	}
	for i := range 5 {
		thread := fmt.Sprintf("chat-%d", i)
		path := runPath(thread, "r")
		events := said(thread, "r", 3)
		s.input(thread, "r", fmt.Sprintf(input, thread, "r"))
		s.within(time.Now(), path, `"status":"running"`)
		s.publish(thread, "r", events[:3]...)
		began := time.Now()
		s.within(began, path+"/history", `"status":"running"`, `"content":"Hello"`, `"content":"0 "`, `"total":2`)
		s.within(began, path, `"status":"running"`, `"TEXT_MESSAGE_CONTENT":1`, `"messageCount":2`)
		s.within(began, path+"/state", `"status":"running"`, `"content":"0 "`)
		s.within(began, path+"/checkout", `"content":"0 "`)
		s.within(began, "/v1/threads/"+thread+"/diff", `"r-a"`)
		s.within(began, path+"/events", "TEXT_MESSAGE_CONTENT")
		s.within(began, "/v1/threads/"+thread, `"openRuns":1`, `"messages":2`)
		s.within(began, "/v1/threads/"+thread+"/lineage", `"runId":"r"`, `"messageCount":2`)
		s.within(began, "/v1/threads?prefix="+thread, thread)
		s.within(began, "/v1/runs?status=running&prefix="+thread, thread)
		for n := 3; n < 5; n++ {
			s.publish(thread, "r", events[n])
			began := time.Now()
			s.within(began, path+"/history", fmt.Sprintf(`%d "`, n-2))
			s.within(began, path+"/state", fmt.Sprintf(`%d "`, n-2))
			s.within(began, path, fmt.Sprintf(`"TEXT_MESSAGE_CONTENT":%d`, n-1))
		}
	}
}

// Each route of a thread or run waits for what the index lacks, and with fresh=no does not.
func TestFresh_EveryRouteOfAThreadWaits(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), options{production: true})
	s.publish("warm", "r", said("warm", "r", 1)...)
	s.get("/v1/threads/warm")
	for i, route := range []string{"", "/lineage", "/history", "/diff", "/export", "/checkout", "/state", "/changes", "/events", "/verify",
		"/runs/r", "/runs/r/history", "/runs/r/checkout", "/runs/r/state", "/runs/r/changes", "/runs/r/events", "/runs/r/verify",
		"/runs/r/export"} {
		thread := fmt.Sprintf("chat-%d", i)
		s.publish(thread, "r", said(thread, "r", 1)...)
		path := "/v1/threads/" + thread + route
		if status, answer := s.send(http.MethodGet, s.queries[0]+path+"?fresh=no", "", ""); status != http.StatusNotFound {
			t.Errorf("GET %s with fresh=no: %d %s", path, status, answer)
		}
		s.get(path)
	}
	if status, answer := s.send(http.MethodGet, s.queries[0]+"/v1/threads/warm?fresh=maybe", "", ""); status != http.StatusBadRequest {
		t.Errorf("fresh=maybe: %d %s", status, answer)
	}
	began := time.Now()
	if status, _ := s.send(http.MethodGet, s.queries[0]+"/v1/threads/none/history", "", ""); status != http.StatusNotFound ||
		time.Since(began) > time.Second {
		t.Errorf("a thread without events: %d after %v", status, time.Since(began))
	}
}

// countedThreads counts how often the rows of a thread are read whole.
type countedThreads struct {
	store.Reader
	n atomic.Int64
}

func (r *countedThreads) Thread(ctx context.Context, tenant, thread string) ([]store.Run, error) {
	r.n.Add(1)
	return r.Reader.Thread(ctx, tenant, thread)
}

// Reads of one thread follow it once: each goes on where the last one ended, whatever happened to its runs since.
func TestFresh_ReadsGoOnWhereTheLastOneEnded(t *testing.T) {
	opened := &countedThreads{}
	s := start(t, kafkatest.Start(t, 1), options{checkpoint: time.Hour, idleLimit: 3 * time.Second,
		reader: func(r store.Reader) store.Reader { opened.Reader = r; return opened }})
	events := said("chat", "r", 40)
	s.publish("chat", "r", events[:3]...)
	path := "/v1/threads/chat/lineage"
	s.within(time.Now(), path, `"runId":"r"`, `"messageCount":1`)
	before := opened.n.Load()
	var reads sync.WaitGroup
	for n := 3; n < 10; n++ {
		s.publish("chat", "r", events[n])
		for range 2 {
			reads.Go(func() { s.get(path) })
		}
		s.get(path)
	}
	reads.Wait()
	if n := opened.n.Load(); n != before {
		t.Errorf("21 reads opened the thread %d times again", n-before)
	}
	has := func(path string, texts ...string) {
		t.Helper()
		answer := s.get(path)
		for _, text := range texts {
			if !strings.Contains(answer, text) {
				t.Errorf("GET %s lacks %s: %s", path, text, answer)
			}
		}
	}
	// Another run begins and ends.
	s.publish("chat", "b", said("chat", "b", 2)...)
	has(path, `"runId":"b"`, `"status":"finished"`, `"status":"running"`)
	s.publish("chat", "r", `{"type":"TEXT_MESSAGE_CONTENT","messageId":"r-a","delta":"and on"}`)
	has(runPath("chat", "r")+"/history", "and on")
	// The run is given up, and ends all the same while a third one is open.
	s.status("chat", "r", "abandoned")
	has(path, `"status":"abandoned"`)
	s.publish("chat", "c", said("chat", "c", 2)[:3]...)
	has(path, `"status":"running"`)
	s.publish("chat", "r", events[10:]...)
	has(runPath("chat", "r"), `"status":"finished"`)
	has(path, `"status":"running"`, `"status":"finished"`)
	// The thread is erased, and begins again.
	if status, answer := s.send(http.MethodDelete, s.ingest+"/v1/threads/chat", "", ""); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	if status, answer := s.send(http.MethodGet, s.queries[0]+path, "", ""); status != http.StatusGone {
		t.Errorf("after its erasure: %d %s", status, answer)
	}
	s.publish("chat", "c", said("chat", "c", 2)[:3]...)
	if answer := s.get(runPath("chat", "c") + "/history"); strings.Contains(answer, `"b-a"`) || !strings.Contains(answer, `"total":1`) {
		t.Errorf("the thread that began again: %s", answer)
	}
}
