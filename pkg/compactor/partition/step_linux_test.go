package partition

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/test/parts/partstest"
)

// maxStep is how long one record may take on a machine that is busy. docs/security.md says what they take.
const maxStep = 2 * time.Second

// threadTime is the processor time that the calling thread has taken.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// No record takes a partition for longer than maxStep, whatever its sender puts into it within the declared limits: other partitions of
// the process wait for as long.
func TestPartition_NoRecordTakesLong(t *testing.T) {
	partstest.SkipShort(t, "time for tests of scale")
	const size = 14 << 20
	prose := strings.Repeat(`words with \"quotes\", \u00e9 and \n; `, size/37)
	list := func(n int, of func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.Repeat(",", min(i, 1)))
			b.WriteString(of(i))
		}
		return b.String()
	}
	messages := list(agui.MaxMessages, func(i int) string {
		return fmt.Sprintf(`{"id":"m%d","role":"assistant","content":%q}`, i, strings.Repeat("x", size/agui.MaxMessages-60))
	})
	calls := list(agui.MaxToolCalls, func(i int) string {
		return fmt.Sprintf(`{"id":"c%d","type":"function","function":{"name":"f","arguments":"{}"}}`, i)
	})
	members := list(agui.MaxMembers, func(i int) string { return fmt.Sprintf(`"member-%d":{"a":[%d,"x"]}`, i, i) })
	numbers := "[" + strings.Repeat("0,", size/2-1) + "0]"
	for name, c := range map[string]struct {
		before []string // events of the run
		last   string   // the event that is measured
		input  bool
	}{
		"text":                              {nil, text("m", prose), false},
		"text behind as much":               {[]string{text("m", prose)}, text("m", prose), false},
		"a state":                           {nil, `{"type":"STATE_SNAPSHOT","snapshot":{"l":` + numbers + `}}`, false},
		"a state of as many members":        {nil, `{"type":"STATE_SNAPSHOT","snapshot":{` + members + `}}`, false},
		"a patch that leads into a state":   {[]string{`{"type":"STATE_SNAPSHOT","snapshot":{"l":` + numbers + `}}`}, `{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/l/1"},{"op":"add","path":"/l/5000000","value":1}]}`, false},
		"a patch of as many operations":     {[]string{`{"type":"STATE_SNAPSHOT","snapshot":{"l":[0]}}`}, `{"type":"STATE_DELTA","delta":[` + list(200_000, func(int) string { return `{"op":"add","path":"/l/0","value":0}` }) + `]}`, false},
		"as many messages":                  {nil, `{"type":"MESSAGES_SNAPSHOT","messages":[` + messages + `]}`, false},
		"as many messages behind as many":   {[]string{`{"type":"MESSAGES_SNAPSHOT","messages":[` + messages + `]}`}, `{"type":"MESSAGES_SNAPSHOT","messages":[` + messages + `]}`, false},
		"as many tool calls":                {nil, `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"assistant","toolCalls":[` + calls + `]}]}`, false},
		"a custom event":                    {nil, custom(prose), false},
		"an input":                          {nil, `{"threadId":"t","runId":"r","messages":[` + messages + `],"tools":[],"context":[]}`, true},
		"the end of a run of much text":     {[]string{text("m", prose)}, finished("r"), false},
		"the end of a run of many messages": {[]string{`{"type":"MESSAGES_SNAPSHOT","messages":[` + messages + `]}`}, finished("r"), false},
		"what is no JSON":                   {nil, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"` + prose, false},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			s := newSim(t, nil)
			s.open(false)
			if !c.input {
				s.Send("t", "r", started("r"))
			}
			for _, value := range c.before {
				s.Send("t", "r", value)
			}
			s.feed(len(s.Events))
			var m *kgo.Record
			if c.input {
				m = s.Input("t", "r", c.last)
			} else {
				m = s.Send("t", "r", c.last)
			}
			runtime.GC() // or this one pays for the memory of others
			began := threadTime(t)
			s.process(m)
			took := threadTime(t) - began
			t.Logf("%v for %d bytes", took, len(c.last))
			if took > maxStep {
				t.Errorf("the record takes %v, want %v at most", took, maxStep)
			}
		})
	}
}
