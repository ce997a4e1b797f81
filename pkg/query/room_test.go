package query

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// held says what of the room is held.
func (r *room) held() string {
	return fmt.Sprintf("%d slots, %d bytes", r.slots.Held(), r.memory.Held())
}

const nothingHeld = "0 slots, 0 bytes"

func testRoom() *room {
	cfg := DefaultConfig()
	cfg.Slots, cfg.Memory = 12, 96<<20
	return newRoom(cfg)
}

func TestLoad_RefusesWhatNeverFitsAndWhatDoesNotFitNow(t *testing.T) {
	room := testRoom()
	read := func(bytes int64) *front.Problem {
		l := room.load("acme")
		err := l.withSlot(t.Context(), func() error { return l.take(bytes) })
		why := new(front.Problem)
		if err != nil && (!errors.As(err, &why) || !isNoRoom(err)) {
			t.Fatal(err)
		}
		return why
	}
	if r := read(32 << 20); r.Status != 0 {
		t.Errorf("half of the memory: %d %s", r.Status, r.Detail)
	}
	if r := read(room.memory.Alone() + 1); r.Status != http.StatusUnprocessableEntity || r.Retry != 0 || r.Limit != "memory" {
		t.Errorf("more than half of the memory: %d %s", r.Status, r.Detail)
	}
	room.memory.Take("acme", 20<<20)
	if r := read(20 << 20); r.Status != http.StatusTooManyRequests || r.Retry == 0 || r.Limit != "memory" {
		t.Errorf("beside others: %d %s", r.Status, r.Detail)
	}
	other := room.load("umbrella")
	if err := other.withSlot(t.Context(), func() error { return other.take(20 << 20) }); err != nil {
		t.Errorf("another tenant: %v", err)
	}
}

// A live stream lasts for minutes: memory that it needed for a moment is not held until its end.
func TestLoad_HoldReturnsMemoryAtOnce(t *testing.T) {
	room := testRoom()
	l := room.load("acme")
	if err := l.hold(32 << 20); err != nil {
		t.Fatal(err)
	}
	if err := l.hold(-(32 << 20)); err != nil {
		t.Fatal(err)
	}
	if held := room.memory.HeldBy("acme"); held >= memoryStep {
		t.Errorf("the request still holds %d bytes", held)
	}
	l.close()
	if held := room.held(); held != nothingHeld {
		t.Error(held)
	}
}

func TestLoad_WaitsItsTurnForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := testRoom()
		for room.slots.Take("acme", 1) {
		}
		l := room.load("acme")
		begun := time.Now()
		why := new(front.Problem)
		err := l.acquire(t.Context())
		if !errors.As(err, &why) || why.Status != http.StatusTooManyRequests || time.Since(begun) != room.patience {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		other := room.load("umbrella")
		if err := other.acquire(t.Context()); err != nil {
			t.Errorf("another tenant: %v", err)
		}
		other.releaseSlot()
		go func() {
			time.Sleep(time.Second)
			room.slots.Give("acme", 1)
		}()
		if err := l.acquire(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestHandler_GivesBackWhatARequestHeld(t *testing.T) {
	f := newFixture(t)
	f.put(run("chat", "r", 0, msg("m", agui.RoleAssistant, "x")))
	for _, path := range []string{"/v1/threads/chat/history", "/v1/threads/chat/lineage", "/v1/threads/none",
		"/v1/threads/chat?atLeast=3:9999", "/v1/threads?limit=x"} {
		f.get("acme", path, "Cookie", strings.Repeat("x", 20_000))
	}
	f.server.Close() // handlers have ended
	if held := f.service.room.held(); held != nothingHeld {
		t.Errorf("%s", held)
	}
}

// What the headers of a request take beyond the usual is held for as long as it goes on, while it waits, too.
func TestHandler_HeadersCountAsMemory(t *testing.T) {
	f := newFixture(t)
	f.put(run("chat", "r", 0, msg("m", agui.RoleAssistant, "x")))
	if !f.service.room.memory.Take("acme", f.service.room.memory.Alone()-memoryStep-requestBytes-8<<10) {
		t.Fatal("the tenant has no share")
	}
	if r := f.get("acme", "/v1/threads/chat/lineage"); r.status != http.StatusOK {
		t.Fatalf("with usual headers it is %d %s", r.status, r.body)
	}
	r := f.call(http.MethodGet, "acme", "/v1/threads/chat/lineage", "Cookie", strings.Repeat("x", 20_000))
	r.problem(t, http.StatusTooManyRequests)
	if !strings.Contains(r.body, `"limit":"memory"`) {
		t.Errorf("it says %s", r.body)
	}
}

func TestPacer_CutsPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pacer{pace: 1}
		out := newReplayWriter(&call{load: testRoom().load("acme"), Call: &front.Call{W: discard{}, R: &http.Request{Header: http.Header{}}}})
		begun := time.Now()
		for _, at := range []time.Duration{0, 24 * time.Hour, 24*time.Hour + time.Second} {
			if err := p.wait(t.Context(), begun.Add(at), out); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != maxPause+time.Second {
			t.Errorf("a day and a second took %v", took)
		}
	})
}

// discard takes answers.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}
func (discard) FlushError() error           { return nil }

// A stream that waits for a slot sends heartbeats, and ends when its life is over. A slot that comes free while it writes to a slow reader
// is another tenant's.
func TestStream_SendsHeartbeatsWhileItWaitsForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, room := DefaultConfig(), testRoom()
		for room.slots.Take("acme", 1) {
		}
		ctx, end := context.WithTimeoutCause(t.Context(), cfg.StreamLife, errLife)
		defer end()
		waiting := func(from cursor) (*stream, *slowCaller) {
			w := &slowCaller{ResponseRecorder: httptest.NewRecorder()}
			c := &call{Service: &Service{cfg: cfg, room: room}, Call: &front.Call{W: w, Tenant: "acme"}, threadID: "chat", load: room.load("acme")}
			s, err := c.newStream(ctx, "", from)
			if err != nil {
				t.Fatal(err)
			}
			c.load.lateAfter, c.load.late = cfg.StreamHeartbeat, s.late
			return s, w
		}
		s, w := waiting(cursor{at: record.Position{Partition: 3, Offset: 7}, seq: -1})
		first := make(chan error)
		go func() { first <- s.load.acquire(ctx) }()
		time.Sleep(3*cfg.StreamHeartbeat + time.Second)
		synctest.Wait()
		if got, want := w.Body.String(), "retry: 1000\nid: 3:7\n\n"+strings.Repeat(": \n\n", 3); got != want {
			t.Errorf("meanwhile it says %q, want %q", got, want)
		}
		w.blocks.Store(int64(time.Minute))
		time.Sleep(cfg.StreamHeartbeat) // it writes
		room.slots.Give("acme", 1)
		if held := room.slots.HeldBy("acme"); held != 5 {
			t.Errorf("while it writes, its tenant holds %d slots, want 5", held)
		}
		if err := <-first; err != nil || room.slots.HeldBy("acme") != 6 {
			t.Errorf("it has %d slots: %v", room.slots.HeldBy("acme"), err)
		}
		late, _ := waiting(joining())
		begun := time.Now()
		if err := late.load.acquire(ctx); !errors.Is(err, errLife) || time.Since(begun) > cfg.StreamLife {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		s.load.end()
	})
}

// slowCaller takes so long for each write.
type slowCaller struct {
	*httptest.ResponseRecorder
	blocks atomic.Int64 // nanoseconds
}

func (w *slowCaller) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(w.blocks.Load()))
	return w.ResponseRecorder.Write(b)
}

// Compressing an answer counts for as long as it is written; where there is no memory for it, the answer comes as it is.
func TestCall_CountsWhatCompressingTakes(t *testing.T) {
	f := newFixture(t)
	f.put(run("chat", "r", 0, msg("m", agui.RoleAssistant, strings.Repeat("x", 8<<10))))
	memory := f.service.room.memory
	const path = "/v1/threads/chat/history"
	if r := f.get("acme", path, "Accept-Encoding", "gzip"); r.header.Get("Content-Encoding") != "gzip" {
		t.Errorf("it is not compressed: %v", r.header)
	}
	left := memory.Alone() - encoderBytes - requestBytes
	if !memory.Take("acme", left) {
		t.Fatal("a tenant must have its share")
	}
	if r := f.get("acme", path, "Accept-Encoding", "gzip"); r.status != http.StatusOK || r.header.Get("Content-Encoding") != "" ||
		!strings.Contains(r.body, "xxx") {
		t.Errorf("without memory for it: %d %v", r.status, r.header)
	}
	f.get("acme", "/v1/threads/nowhere/history", "Accept-Encoding", "gzip").problem(t, http.StatusNotFound)
	if n := memory.Held(); n != left {
		t.Errorf("%d bytes are held at the end, want %d", n, left)
	}
}
