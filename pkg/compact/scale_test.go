//go:build unix

package compact_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
)

// cpu is the processor time that this process has used. Unlike the time of the day it does not
// count what other processes of a busy machine do.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// scale folds n generated events and returns the processor time it took.
func scale(t *testing.T, n int, line func(i int) string) time.Duration {
	t.Helper()
	r := compact.New(nil, nil)
	var ev agui.Event
	begin := cpu(t)
	for i := range n {
		if err := ev.Decode([]byte(line(i))); err != nil {
			t.Fatal(err)
		}
		if err := r.Apply(&ev); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.Messages(); len(got) == 0 {
		t.Fatal("no messages")
	}
	return cpu(t) - begin
}

// Nothing in the fold is quadratic. Each case is folded at a size and at four times that size; a
// quadratic step would take sixteen times as long, and the bound is ten. The best of three counts.
func TestRun_CostsGrowWithTheEvents(t *testing.T) {
	for name, c := range map[string]struct {
		n    int
		line func(i int) string
	}{
		"deltas of one character": {50_000, func(i int) string {
			if i == 0 {
				return `{"type":"TEXT_MESSAGE_START","messageId":"m"}`
			}
			return `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}`
		}},
		"messages": {5_000, func(i int) string {
			return fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","messageId":"m%d"}`, i)
		}},
		"tool calls with results": {5_000, func(i int) string {
			if i%2 == 0 {
				return fmt.Sprintf(`{"type":"TOOL_CALL_START","toolCallId":"c%d","toolCallName":"n"}`, i)
			}
			return fmt.Sprintf(`{"type":"TOOL_CALL_RESULT","messageId":"r%d","toolCallId":"c%d","content":""}`, i, i-1)
		}},
		"calls of one message": {5_000, func(i int) string {
			return fmt.Sprintf(`{"type":"TOOL_CALL_START","toolCallId":"c%d","toolCallName":"n","parentMessageId":"m"}`, i)
		}},
		"a busy activity": {10_000, func(i int) string {
			if i == 0 {
				return `{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"p","content":{"rows":[` + strings.Repeat(`{"x":1},`, 5000) + `{}],"n":0}}`
			}
			return fmt.Sprintf(`{"type":"ACTIVITY_DELTA","messageId":"a","activityType":"p","patch":[{"op":"replace","path":"/n","value":%d}]}`, i)
		}},
		"a state that gathers members": {10_000, func(i int) string {
			if i == 0 {
				return `{"type":"TEXT_MESSAGE_START","messageId":"m"}`
			}
			return fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/k%d","value":%d}]}`, i, i)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			small, large := time.Hour, time.Hour
			for range 3 {
				small = min(small, scale(t, c.n, c.line))
				large = min(large, scale(t, 4*c.n, c.line))
			}
			if large > 10*small && large > 200*time.Millisecond {
				t.Errorf("%d events took %v, %d took %v", c.n, small, 4*c.n, large)
			}
		})
	}
}
