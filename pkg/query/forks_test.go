package query

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/record"
)

type forksReply struct {
	Forks []struct {
		RunID, ParentRunID string
		Message            *int
		Index, Total, From int
		Alternatives       []struct{ RunID, TipRunID, Status string }
	}
}

// forks says what the forks of a run's history are, briefly.
func (f *fixture) forks(run string) string {
	f.t.Helper()
	var r forksReply
	f.json("/v1/threads/chat/runs/"+run+"/history", &r)
	var all []string
	for _, k := range r.Forks {
		at := "?"
		if k.Message != nil {
			at = fmt.Sprint(*k.Message)
		}
		var runs []string
		for _, a := range k.Alternatives {
			runs = append(runs, a.RunID+"→"+a.TipRunID)
		}
		all = append(all, fmt.Sprintf("%s<%s at %s: %d of %d: %s", k.RunID, k.ParentRunID, at, k.Index, k.Total, strings.Join(runs, " ")))
	}
	return strings.Join(all, "; ")
}

func TestHistory_NamesTheForksOfItsChain(t *testing.T) {
	f := newFixture(t)
	root := run("chat", "root", 1, msg("u1", "user", "one"), msg("a1", "assistant", "1"))
	first := child(root, "first", 2, record.ParentContent, msg("u2", "user", "two"), msg("a2", "assistant", "2"))
	second := child(root, "second", 3, record.ParentContent, msg("u2b", "user", "two, again"))
	deeper := child(second, "deeper", 4, record.ParentContent)
	third := child(root, "third", 5, record.ParentExplicit, msg("u1", "user", "ONE"))
	f.put(root, first, second, deeper, third)
	const at1 = "0 of 3: first→first second→deeper third→third"
	for run, want := range map[string]string{
		"root":   "",
		"first":  "first<root at 2: " + at1,
		"second": "second<root at 2: 1" + at1[1:],
		"deeper": "second<root at 2: 1" + at1[1:],
		"third":  "third<root at 0: 2" + at1[1:],
	} {
		if got := f.forks(run); got != want {
			t.Errorf("%s: %s\nwant %s", run, got, want)
		}
	}
	// A copy that a caller has is no longer current once others part from its chain.
	had := f.get("acme", "/v1/threads/chat/runs/deeper/history").header.Get("ETag")
	if r := f.get("acme", "/v1/threads/chat/runs/deeper/history", "If-None-Match", had); r.status != 304 {
		t.Errorf("the same history: %d", r.status)
	}
	f.put(child(second, "beside", 6, record.ParentExplicit))
	if r := f.get("acme", "/v1/threads/chat/runs/deeper/history", "If-None-Match", had); r.status != 200 {
		t.Errorf("with another fork: %d", r.status)
	}
	// Roots part, too; and there may be very many.
	var more []*record.Run
	for i := range 150 {
		more = append(more, run("chat", fmt.Sprint("more-", i), int64(10+i), msg("m", "user", "x")))
	}
	f.put(more...)
	var r forksReply
	f.json("/v1/threads/chat/runs/more-75/history", &r)
	if k := r.Forks[0]; len(r.Forks) != 1 || k.ParentRunID != "" || k.Total != 151 || k.Index != 76 || len(k.Alternatives) != 100 || k.Alternatives[k.Index-k.From].RunID != "more-75" {
		t.Errorf("a fork of very many roots: %d of %d, %d from %d", k.Index, k.Total, len(k.Alternatives), k.From)
	}
}

func TestInterrupts_AreThoseThatNobodyHasAnswered(t *testing.T) {
	f := newFixture(t)
	wait := func(thread, id string, n int64, interrupts ...string) *record.Run {
		r := run(thread, id, n)
		r.Status = record.StatusInterrupted
		for _, i := range interrupts {
			r.Interrupts = append(r.Interrupts, json.RawMessage(i))
		}
		return r
	}
	old := wait("a/b", "r", 1, `{"id":"i1","reason":"approval","expiresAt":"2020-01-01T00:00:00Z"}`, `{"id":"i2","reason":"input","expiresAt":"2999-01-01T00:00:00Z"}`)
	old.Agent, old.Labels = "shop", map[string]string{"user": "x"}
	f.put(old)
	answered := wait("chat", "answered", 2, `{"id":"i3","reason":"x"}`)
	f.put(answered)
	f.put(child(answered, "answer", 3, record.ParentExplicit))
	f.put(wait("chat", "younger", 4, `{"id":7}`))
	other := wait("chat", "r", 5, `{"id":"i4"}`)
	other.Tenant = "umbrella"
	f.put(other)
	type reply struct {
		Runs []struct {
			ThreadID, RunID, Agent string
			Labels                 map[string]string
			EndedAt                time.Time
			AgeSeconds             int64
			Interrupts             []struct {
				Interrupt struct{ ID any }
				Expired   bool
			}
			Answer struct {
				Checkout string
				Resume   []struct{ InterruptID, Status string }
			}
		}
		Next string
	}
	var all reply
	f.json("/v1/interrupts", &all)
	if len(all.Runs) != 2 || all.Runs[0].RunID != "r" || all.Runs[1].RunID != "younger" || all.Next != "" {
		t.Fatalf("they are %+v", all)
	}
	w := all.Runs[0]
	if w.ThreadID != "a/b" || w.Agent != "shop" || w.Labels["user"] != "x" || !w.EndedAt.Equal(*old.EndedAt) ||
		time.Duration(w.AgeSeconds)*time.Second < time.Since(*old.EndedAt)-time.Minute ||
		len(w.Interrupts) != 2 || !w.Interrupts[0].Expired || w.Interrupts[1].Expired || len(w.Answer.Resume) != 2 ||
		w.Answer.Resume[1].InterruptID != "i2" {
		t.Errorf("the first is %+v", w)
	}
	// What it names to answer with is there.
	if r := f.get("acme", w.Answer.Checkout); r.status != 200 || !strings.Contains(r.body, `"parentRunId":"r"`) {
		t.Errorf("its input is %d %s", r.status, r.body)
	}
	var first, second reply
	f.json("/v1/interrupts?limit=1", &first)
	f.json("/v1/interrupts?limit=1&after="+first.Next, &second)
	if len(first.Runs) != 1 || len(second.Runs) != 1 || first.Runs[0].RunID != "r" || second.Runs[0].RunID != "younger" || second.Next != "" {
		t.Errorf("in pages: %+v %+v", first, second)
	}
	var shop reply
	if f.json("/v1/interrupts?agent=shop", &shop); len(shop.Runs) != 1 {
		t.Errorf("of one agent: %+v", shop)
	}
	for _, query := range []string{"?limit=0", "?after=x", "?after=e30x", "?thread=t"} {
		f.get("acme", "/v1/interrupts"+query).problem(t, 400)
	}
}
