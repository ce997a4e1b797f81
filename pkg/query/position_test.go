package query

import (
	"context"
	"net/http"
	"strings"
	"testing"

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

func TestAtLeast_IsReachedOnceThePositionIs(t *testing.T) {
	calls := make(chan struct{}, 1)
	f := newPatientFixture(t, func(r store.Reader) store.Reader { return asked{r, calls} })
	f.put(run("chat", "run", 1, msg("u", "user", "x")))
	done := make(chan reply)
	go func() { done <- f.get("acme", "/v1/threads/chat/runs/run/history?atLeast=3:20") }()
	<-calls // it is not there yet
	f.decided(21)
	if r := <-done; r.status != http.StatusOK {
		t.Errorf("answer %d %s", r.status, r.body)
	}
}

// How far an open run is told only its own record says; a sealed run misses nothing, also where another
// run of its thread is open.
func TestAtLeast_OpenRunsWaitForTheirOwnRecord(t *testing.T) {
	f := newFixture(t)
	f.put(run("chat", "sealed", 1, msg("u", "user", "x")))
	f.put(opened(run("chat", "open", 2, msg("m", "assistant", "y")))) // told up to 3:29
	f.decided(100)
	for _, c := range []struct {
		path   string
		status int
	}{
		{"/v1/threads/chat/runs/open?atLeast=3:29", 200},
		{"/v1/threads/chat/runs/open?atLeast=3:30", 425},
		{"/v1/threads/chat/runs/open/history?atLeast=3:30", 425},
		{"/v1/threads/chat?atLeast=3:99", 425},
		{"/v1/threads/chat/lineage?atLeast=3:99", 425},
		{"/v1/threads/chat/history?atLeast=3:99", 425},
		{"/v1/threads/chat/runs/sealed?atLeast=3:99", 200},
		{"/v1/threads/chat/runs/sealed/history?atLeast=3:99", 200},
		{"/v1/threads/chat/runs/sealed/history?atLeast=3:100", 425},
	} {
		if r := f.get("acme", c.path); r.status != c.status || !strings.Contains(r.body, `"indexedTo":"3:99"`) {
			t.Errorf("%s: %d, want %d: %s", c.path, r.status, c.status, r.body)
		}
	}
	f.put(run("chat", "open", 2, msg("m", "assistant", "y")))
	for _, path := range []string{"/v1/threads/chat", "/v1/threads/chat/history", "/v1/threads/chat/runs/open/history"} {
		if r := f.get("acme", path+"?atLeast=3:99"); r.status != http.StatusOK {
			t.Errorf("%s once it is sealed: %d %s", path, r.status, r.body)
		}
	}
}
