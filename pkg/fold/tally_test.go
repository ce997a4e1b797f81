package fold

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// times adds events that come a second apart, and returns the times of their tool calls.
func times(t *testing.T, into *Tally, from int, events ...string) string {
	t.Helper()
	for i, text := range events {
		ev, err := agui.Decode([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		into.Add(ev, time.Unix(int64(from+i), 0))
	}
	return timesOf(t, into)
}

func timesOf(t *testing.T, of *Tally) string {
	t.Helper()
	text, err := json.Marshal(of.calls.of)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const (
	runStarted = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`
	start      = `{"type":"TOOL_CALL_START","toolCallId":%q,"toolCallName":"f"}`
	chunk      = `{"type":"TOOL_CALL_CHUNK","toolCallId":%q,"toolCallName":"f","delta":"{}"}`
	result     = `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":%q,"content":"x"}`
)

func TestTally_NotesWhenToolCallsBeganAndHadTheirResults(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		want   string
	}{
		"a call":                          {[]string{fmt.Sprintf(start, "a"), `{"type":"TOOL_CALL_END","toolCallId":"a"}`, fmt.Sprintf(result, "a")}, `{"a":[1000,3000]}`},
		"one after the other":             {[]string{fmt.Sprintf(start, "b"), fmt.Sprintf(start, "a"), fmt.Sprintf(result, "b")}, `{"a":[2000],"b":[1000,3000]}`},
		"chunks":                          {[]string{fmt.Sprintf(chunk, "a"), `{"type":"TOOL_CALL_CHUNK","delta":"{}"}`, fmt.Sprintf(chunk, "a"), fmt.Sprintf(result, "a")}, `{"a":[1000,4000]}`},
		"a call of another run":           {[]string{fmt.Sprintf(result, "old")}, `null`},
		"an id that comes again":          {[]string{fmt.Sprintf(start, "a"), fmt.Sprintf(result, "a"), fmt.Sprintf(start, "a"), fmt.Sprintf(result, "a")}, `{"a":[1000,2000]}`},
		"by the events' own times":        {[]string{`{"type":"TOOL_CALL_START","toolCallId":"a","toolCallName":"f","timestamp":1795250000250}`, `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"a","content":"x","timestamp":1795250000900}`}, `{"a":[1795250000250,1795250000900]}`},
		"times that go backwards":         {[]string{`{"type":"TOOL_CALL_START","toolCallId":"a","toolCallName":"f","timestamp":1795250000250}`, fmt.Sprintf(result, "a")}, `{"a":[1795250000250,1795250000250]}`},
		"an id that is half a surrogate":  {[]string{`{"type":"TOOL_CALL_START","toolCallId":"\ud800","toolCallName":"f"}`}, `{"\ud800":[1000]}`},
		"a call with an id that is empty": {[]string{fmt.Sprintf(start, "")}, `{"":[1000]}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := times(t, NewTally(), 0, append([]string{runStarted}, c.events...)...); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestTally_BoundsTheTimesOfToolCalls(t *testing.T) {
	events := []string{runStarted}
	for i := range maxCalls + 10 {
		events = append(events, fmt.Sprintf(start, fmt.Sprint("c", i)))
	}
	many := NewTally()
	times(t, many, 0, append(events, fmt.Sprintf(result, fmt.Sprint("c", maxCalls-1)), fmt.Sprintf(result, fmt.Sprint("c", maxCalls)))...)
	if n := len(many.calls.of); n != maxCalls || len(many.calls.of[fmt.Sprint("c", maxCalls-1)]) != 2 {
		t.Errorf("%d calls, the last one with %v; want %d, with its result", n, many.calls.of[fmt.Sprint("c", maxCalls-1)], maxCalls)
	}
	long := NewTally()
	half := strings.Repeat("x", maxCallBytes/2)
	times(t, long, 0, runStarted, fmt.Sprintf(start, half+"yz"), fmt.Sprintf(start, half), fmt.Sprintf(start, "a"),
		fmt.Sprintf(start, strings.Repeat("y", maxCallBytes)))
	if len(long.calls.of) != 2 || long.calls.bytes > maxCallBytes || long.calls.of["a"] == nil {
		t.Errorf("%d calls with %d bytes of ids, want the two that fit", len(long.calls.of), long.calls.bytes)
	}
	over := NewTally() // no call fits, and the record says so
	if got := times(t, over, 0, runStarted, fmt.Sprintf(start, strings.Repeat("y", maxCallBytes+1))); got != "{}" {
		t.Errorf("%s, want {}", got)
	}
}

func TestTally_GoesOnWithTheTimesOfARecord(t *testing.T) {
	called := record.Stats{Events: map[string]int64{"TOOL_CALL_START": 1}}
	with := func(s record.Stats, times agui.StringMap[[]int64]) record.Stats {
		s.ToolCallTimes = times
		return s
	}
	for name, c := range map[string]struct {
		rec  record.Run
		want string
	}{
		"no call by then":             {record.Run{Stats: record.Stats{Events: map[string]int64{"RUN_STARTED": 1}}}, `{"b":[5000]}`},
		"a call by then":              {record.Run{Stats: with(called, map[string][]int64{"a": {7}})}, `{"a":[7,6000],"b":[5000]}`},
		"a call that did not fit":     {record.Run{Stats: with(called, map[string][]int64{})}, `{"b":[5000]}`},
		"of a record without times":   {record.Run{Stats: called}, `null`},
		"the same, of calls by chunk": {record.Run{Stats: record.Stats{Events: map[string]int64{"TOOL_CALL_CHUNK": 3}}}, `null`},
		"its contents were cut":       {record.Run{Cut: &record.Cut{Events: 1}}, `null`},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(c.rec.Stats.ToolCallTimes)
			tally := NewTally()
			tally.Events, tally.StartedAt = 1, time.Unix(0, 0)
			tally.restoreCallTimes(&c.rec)
			if got := times(t, tally, 5, fmt.Sprintf(start, "b"), fmt.Sprintf(result, "a")); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if len(c.rec.Stats.ToolCallTimes) != before {
				t.Error("the record was changed")
			}
		})
	}
}
