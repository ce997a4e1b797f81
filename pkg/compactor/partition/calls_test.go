package partition

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/verify"
)

// calling has a run call a tool three times, each event a second behind the last.
func calling(s *sim) {
	for i, event := range []string{
		started("r"), `{"type":"TOOL_CALL_START","toolCallId":"a","toolCallName":"f"}`, `{"type":"TOOL_CALL_END","toolCallId":"a"}`,
		`{"type":"TOOL_CALL_CHUNK","toolCallId":"b","toolCallName":"f","delta":"{}"}`, `{"type":"TOOL_CALL_RESULT","messageId":"ra","toolCallId":"a","content":"x"}`,
		`{"type":"TOOL_CALL_RESULT","messageId":"rb","toolCallId":"b","content":"x"}`, `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"g"}`, finished("r"),
	} {
		s.Now = s.Now.Add(time.Second)
		s.Send("t", "r", event, seq(i))
	}
}

// A record has the times of its tool calls, wherever the process dies between two events of a call, and folded again from the log.
func TestPartition_NotesTheTimesOfToolCallsOverAnyRestart(t *testing.T) {
	const want = `{"a":[1000,4000],"b":[3000,5000],"c":[6000]}`
	script := newSim(t, nil)
	calling(script)
	for at := range len(script.Events) + 1 {
		s := newSim(t, nil)
		s.open(false)
		for n, m := range script.Events {
			if n == at {
				s.Now = s.Now.Add(s.cfg.CheckpointMax)
				s.commit(true)
				s.open(true)
			}
			s.Events = append(s.Events, m)
			s.feed(1)
		}
		s.commit(true)
		r := s.run("r")
		got, err := json.Marshal(r.Stats.ToolCallTimes)
		s.check(err)
		equal(t, fmt.Sprint("times where it dies before event ", at), string(got), want)
		proofs, err := hasRecord{"r": r}.verify(s.Events, nil, false)
		s.check(err)
		equal(t, "verdict", proofs[0].Verdict, verify.Proved)
	}
}
