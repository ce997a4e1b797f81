//go:build unix && !race

// Without the race detector, which multiplies some steps and not others, and with the processors to itself:
// make check runs these tests in a step of their own.

package compact_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/test/parts/partstest"
)

// cpu returns the processor time that this process has used, which other processes of a busy machine do not affect.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// scale folds n generated events and returns the processor time that takes. breaks names the rules that they may break.
func scale(t *testing.T, n int, line func(i, n int) string, breaks ...string) time.Duration {
	t.Helper()
	r := compact.New(nil, nil)
	var ev agui.Event
	runtime.GC() // so that earlier garbage is not counted
	begin := cpu(t)
	for i := range n {
		if err := ev.Decode([]byte(line(i, n))); err != nil {
			t.Fatal(err)
		}
		if err := r.Apply(&ev); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = r.Messages(), r.State()
	took := cpu(t) - begin
	for rule, count := range r.Summary().Anomalies {
		if rule != "first-event-not-run-started" && !slices.Contains(breaks, rule) {
			t.Fatalf("%s is counted %d times: the case does not do what it says", rule, count)
		}
	}
	return took
}

// rows is an array of n objects that are not small.
func rows(n int) string {
	return `[` + strings.Repeat(`{"name":"a row of a table","tags":["a","b","c"],"score":0.5,"open":true},`, n-1) + `{}]`
}

// grows fails the test if the cost of the large size, sixteen times the small one, grows like a square. A linear cost is 16 times as
// much, a square 256 times; the bound is midway. The smallest of up to five tries counts, so that a busy machine makes no difference.
func grows(t *testing.T, small, large func() time.Duration) {
	t.Helper()
	const bound, tries = 64, 5
	low, high := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for i := 0; i < tries && (i == 0 || high > bound*low); i++ {
		low, high = min(low, small()), min(high, large())
	}
	t.Logf("%v, of 16 times as much: %v", low.Round(time.Microsecond), high.Round(time.Microsecond))
	if high > bound*low {
		t.Errorf("%v became %v for 16 times as much", low, high)
	}
}

// No cost in the fold is quadratic, except for the walks of docs/adr/021.
func TestRun_CostsGrowWithTheEvents(t *testing.T) {
	partstest.SkipShort(t, "time for tests of scale")
	for name, c := range map[string]struct {
		n      int
		line   func(i, n int) string
		breaks string
	}{
		"a megabyte of deltas of one character": {1 << 20, func(i, _ int) string {
			if i == 0 {
				return `{"type":"TEXT_MESSAGE_START","messageId":"m"}`
			}
			return `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}`
		}, ""},
		"messages": {100_000, func(i, _ int) string {
			return fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","messageId":"m%d"}`, i)
		}, ""},
		"tool calls with results": {100_000, func(i, _ int) string {
			if i%2 == 0 {
				return fmt.Sprintf(`{"type":"TOOL_CALL_START","toolCallId":"c%d","toolCallName":"n"}`, i)
			}
			return fmt.Sprintf(`{"type":"TOOL_CALL_RESULT","messageId":"r%d","toolCallId":"c%d","content":""}`, i, i-1)
		}, ""},
		"small patches of a state of 5 MB": {70_000, func(i, n int) string {
			if i == 0 {
				return `{"type":"STATE_SNAPSHOT","snapshot":{"rows":` + rows(n) + `,"n":0}}`
			}
			return fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n","value":%d},{"op":"add","path":"/rows/%d/score","value":1}]}`, i, i)
		}, ""},
		"a state that gathers members": {100_000, func(i, _ int) string {
			return fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/k%d","value":%d}]}`, i, i)
		}, ""},
		"patches at the bottom of a deep state": {10_000, func(i, _ int) string {
			const depth = 500
			if i == 0 {
				return `{"type":"STATE_SNAPSHOT","snapshot":` + strings.Repeat(`{"a":`, depth) + `0` + strings.Repeat(`}`, depth) + `}`
			}
			return fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"%s","value":%d}]}`, strings.Repeat("/a", depth), i)
		}, ""},
		"metadata that gathers members": {20_000, func(i, _ int) string {
			if i == 0 {
				return `{"type":"TEXT_MESSAGE_START","messageId":"m"}`
			}
			return fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x","metadata":{"k%d":1}}`, i)
		}, ""},
		"a large value that is moved": {20_000, func(i, n int) string {
			if i == 0 {
				return `{"type":"STATE_SNAPSHOT","snapshot":{"k0":` + rows(n) + `}}`
			}
			return fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"move","from":"/k%d","path":"/k%d"}]}`, i-1, i)
		}, ""},
		"chunks of many subagents in turn": {40_000, func(i, n int) string {
			return fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m%d","subagentRunId":"s%d","delta":"x"}`, i%(n/2), i%(n/2))
		}, ""},
		"steps that stay open": {100_000, func(i, _ int) string {
			return fmt.Sprintf(`{"type":"STEP_STARTED","stepName":"s%d"}`, i)
		}, ""},
		"chunks that say no lane, after many lanes": {100_000, func(i, n int) string {
			switch {
			case i < n/2:
				return fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m%d","delta":"x","subagentRunId":"s%d"}`, i, i)
			case i == n/2:
				return `{"type":"MESSAGES_SNAPSHOT","messages":[]}`
			case i == n/2+1:
				return `{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"x","subagentRunId":"s"}`
			}
			return `{"type":"TEXT_MESSAGE_CHUNK","delta":"x"}`
		}, ""},
		"patches of an activity of many calls, and calls": {agui.MaxToolCalls, func(i, n int) string {
			if i == 0 {
				calls := strings.Repeat(`,{"id":"c","function":{"arguments":""}},{"id":"d","function":{"arguments":""}}`, n/2)[1:]
				return `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"activity","activityType":"p","content":{},"toolCalls":[` + calls + `]}]}`
			}
			if i%2 == 0 {
				return `{"type":"ACTIVITY_DELTA","messageId":"a","activityType":"p","patch":[{"op":"add","path":"/a","value":1}]}`
			}
			return `{"type":"TOOL_CALL_ARGS","toolCallId":"d","delta":"x"}`
		}, "tool-content-not-open"},
	} {
		t.Run(name, func(t *testing.T) {
			grows(t,
				func() time.Duration { return scale(t, c.n/16, c.line, c.breaks) },
				func() time.Duration { return scale(t, c.n, c.line, c.breaks) })
		})
	}
}

// Some events walk the conversation (docs/adr/021): at 10,000 messages, the most that one snapshot brings, that stays short.
func TestRun_EventsThatWalkALongConversationCostLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("measures processor time")
	}
	const n, events, limit = agui.MaxMessages, 100, 5 * time.Millisecond
	const caller = `{"id":"a","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":""}}]}`
	const result = `{"type":"TOOL_CALL_RESULT","messageId":"%s","toolCallId":"c","content":""}`
	snapshot := func(n int, message func(i int) string, more ...string) string {
		for i := range n {
			more = append(more, message(i))
		}
		return `{"type":"MESSAGES_SNAPSHOT","messages":[` + strings.Join(more, ",") + `]}`
	}
	reasoning := func(i int) string { return fmt.Sprintf(`{"id":"r%d","role":"reasoning","content":""}`, i) }
	repeated := func(i int) string { return reasoning(i / 2) }
	holder := func(i int) string {
		return fmt.Sprintf(`{"id":"r%d","role":"reasoning","toolCalls":[{"id":"c","function":{"arguments":""}}],"content":""}`, i)
	}
	for name, c := range map[string]struct {
		first string
		event func(i int) string
	}{
		"results of one call": {
			snapshot(n-1, func(i int) string { return fmt.Sprintf(`{"id":"t%d","role":"tool","toolCallId":"c","content":""}`, i) }, caller),
			func(i int) string { return fmt.Sprintf(result, fmt.Sprint("u", i)) }},
		"snapshots that name one of many repeated ids": {snapshot(n, repeated), func(i int) string {
			return fmt.Sprintf(`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"r%d","role":"user","content":""},{"id":"u","role":"user","content":""},{"id":"u","role":"user","content":""}]}`, i)
		}},
		"arguments of a call that all messages hold, and activities in their place": {snapshot(n, holder), func(i int) string {
			if i%2 == 0 {
				return fmt.Sprintf(`{"type":"ACTIVITY_SNAPSHOT","messageId":"r%d","activityType":"p","content":{}}`, i)
			}
			return `{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"x"}`
		}},
	} {
		t.Run(name, func(t *testing.T) {
			line := func(i, _ int) string {
				if i == 0 {
					return c.first
				}
				return c.event(i - 1)
			}
			setup, all := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
			for range 3 {
				setup = min(setup, scale(t, 1, line, "tool-content-not-open"))
				all = min(all, scale(t, 1+events, line, "tool-content-not-open"))
			}
			took := (all - setup) / events
			t.Logf("%v an event", took.Round(time.Microsecond))
			if took > limit {
				t.Errorf("an event took %v, want at most %v", took, limit)
			}
		})
	}
}
