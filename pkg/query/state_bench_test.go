package query

import (
	"fmt"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

// longRun puts a run r of acme's thread "chat" on the log that has so many events: messages of forty deltas each, tool calls, and a state
// that grows to some 100 counters.
func (f *rawFixture) longRun(events int) {
	f.t.Helper()
	at := []int64{
		f.add("acme", "chat", record.Headers{Kind: record.KindInput, RunID: "r", Seq: -1}, `{"threadId":"chat","runId":"r","messages":[{"id":"u","role":"user","content":"Go"}],"state":{}}`),
		f.event("r", fmt.Sprintf(started, "r")),
	}
	for i := range events - 2 {
		message := i / 50
		value := fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"a%d","delta":"word %d "}`, message, i)
		switch {
		case i%50 >= 45:
			value = fmt.Sprintf(`{"type":"TOOL_CALL_CHUNK","toolCallId":"c%d","toolCallName":"look_up","parentMessageId":"a%d","delta":"{\"n\":%d}"}`, message, message, i)
		case i%50 >= 40:
			value = fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/n%d","value":%d}]}`, i%101, i)
		}
		at = append(at, f.event("r", value))
	}
	f.indexed("r", "", append(at, f.event("r", fmt.Sprintf(finished, "r")))...)
}

// BenchmarkState goes to steps of a run over HTTP: for the first time, to any, to the next, to the next in the last tenth of the run, and
// to a screen of them.
func BenchmarkState(b *testing.B) {
	for _, events := range []int{360, 36_000} {
		f := newRawFixture(b)
		f.longRun(events)
		get := func(query string) {
			if r := f.get("acme", "/v1/threads/chat/runs/r/state"+query); r.status != 200 {
				b.Fatal(r.body)
			}
		}
		b.Run(fmt.Sprintf("events=%d/first", events), func(b *testing.B) {
			for b.Loop() {
				f.service.cache = newCache(f.service.cache.bytes.Limit(), f.service.metrics)
				get(fmt.Sprint("?at=", events/2))
			}
		})
		n := 0
		for name, query := range map[string]func() string{
			"any":       func() string { n = (n + 7919) % events; return fmt.Sprint("?at=", n) },
			"next":      func() string { n = (n + 1) % events; return fmt.Sprint("?at=", n) },
			"late":      func() string { n = events*9/10 + (n+1)%(events/10); return fmt.Sprint("?at=", n) },
			"find":      func() string { return "?find=no+such+text" },
			"screen=50": func() string { n = (n + 50) % events; return fmt.Sprint("?from=", n, "&limit=50") },
		} {
			b.Run(fmt.Sprintf("events=%d/%s", events, name), func(b *testing.B) {
				for b.Loop() {
					get(query())
				}
			})
		}
	}
}
