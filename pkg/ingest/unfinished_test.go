package ingest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/record"
)

// Whatever an agent is in the middle of when its run is stopped: what its caller has read by then is a stream that the official client
// takes to its end, and so is what is on the topic.
func TestCancel_LeavesAStreamThatTheClientTakes(t *testing.T) {
	const started = `{"type":"RUN_STARTED","threadId":"T","runId":"r1"}`
	cases := map[string]struct{ says, ends []string }{
		"nothing yet":           {nil, []string{started[:len(started)-1] + `,"protocolVersion":"1.1"}`}},
		"nothing":               {[]string{started}, nil},
		"a text":                {[]string{started, `{"type":"TEXT_MESSAGE_START","messageId":"m \"1\"","role":"assistant"}`}, []string{`{"type":"TEXT_MESSAGE_END","messageId":"m \"1\""}`}},
		"a text that has ended": {[]string{started, `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`, `{"type":"TEXT_MESSAGE_END","messageId":"\u006d"}`}, nil},
		"a text in chunks":      {[]string{started, `{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"x"}`}, nil},
		"two calls, one after a text": {
			[]string{started, `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`, `{"type":"TOOL_CALL_START","toolCallId":"a","toolCallName":"f"}`,
				`{"type":"TOOL_CALL_START","toolCallId":"b","toolCallName":"f"}`, `{"type":"TOOL_CALL_END","toolCallId":"a"}`},
			[]string{`{"type":"TOOL_CALL_END","toolCallId":"b"}`, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`},
		},
		"reasoning": {
			[]string{started, `{"type":"REASONING_START","messageId":"s"}`, `{"type":"REASONING_MESSAGE_START","messageId":"s","role":"reasoning"}`},
			[]string{`{"type":"REASONING_MESSAGE_END","messageId":"s"}`, `{"type":"REASONING_END","messageId":"s"}`},
		},
		"thinking": {
			[]string{started, `{"type":"THINKING_START"}`, `{"type":"THINKING_TEXT_MESSAGE_START"}`},
			[]string{`{"type":"THINKING_TEXT_MESSAGE_END"}`, `{"type":"THINKING_END"}`},
		},
		"a step of its own and one of a subagent": {
			[]string{started, `{"type":"STEP_STARTED","stepName":"s"}`, `{"type":"SUBAGENT_STARTED","subagentRunId":"sub","name":"n"}`, `{"type":"STEP_STARTED","stepName":"s","subagentRunId":"sub"}`},
			[]string{`{"type":"STEP_FINISHED","stepName":"s","subagentRunId":"sub"}`, `{"type":"SUBAGENT_FINISHED","subagentRunId":"sub"}`, `{"type":"STEP_FINISHED","stepName":"s"}`},
		},
		"a subagent that has failed": {
			[]string{started, `{"type":"SUBAGENT_STARTED","subagentRunId":"sub","name":"n"}`, `{"type":"SUBAGENT_ERROR","subagentRunId":"sub","message":"x"}`}, nil,
		},
	}
	said := map[string]string{}
	for name, c := range cases {
		for i := range c.says {
			c.says[i] = strings.Replace(c.says[i], `"T"`, `"`+name+`"`, 1)
		}
		for i := range c.ends {
			c.ends[i] = strings.Replace(c.ends[i], `"T"`, `"`+name+`"`, 1)
		}
		said[name] = ": it begins\n\n"
		for _, e := range c.says {
			said[name] += "data: " + e + "\n\n"
		}
	}
	shared := startBehind(t, proxyConfig(t), func(a *agents.Agent) { a.OnDisconnect = agents.Cancel },
		func(w http.ResponseWriter, r *http.Request) {
			var in struct{ ThreadID string }
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				t.Error(err)
			}
			answers(said[in.ThreadID])(w, r)
			<-r.Context().Done()
		})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := &behind{stage: shared.in(t, name), agent: shared.agent}
			rest := b.begins("r1")
			if a, got := b.cancel("r1", ""); a.status != http.StatusOK || got.Status != record.StatusCancelled {
				t.Fatalf("answer is %d %s for %s", a.status, a.body, url.PathEscape(name))
			}
			text, err := io.ReadAll(rest)
			if err != nil {
				t.Fatal(err)
			}
			var wire []string
			for _, line := range strings.Split(string(text), "\n") {
				if event, ok := strings.CutPrefix(line, "data: "); ok {
					wire = append(wire, event)
				}
			}
			want := slices.Concat(c.says, c.ends, []string{fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":"r1","outcome":{"type":"cancelled"},"metadata":{"skein.stopped":{}}}`, name)})
			if !slices.Equal(wire, want) {
				t.Errorf("the caller reads\n%q, want\n%q", wire, want)
			}
			fold := compact.New(nil, nil)
			for _, e := range wire {
				ev, err := agui.Decode([]byte(e))
				if err == nil {
					err = fold.Apply(ev)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if s := fold.Summary(); s.Status != "cancelled" || len(s.Anomalies) > 0 {
				t.Errorf("the client finds %v in a run that is %s", s.Anomalies, s.Status)
			}
			topic := slices.DeleteFunc(b.records()[1:], func(r *kgo.Record) bool { return headersOf(t, r).Kind != record.KindEvent })
			for i, r := range topic {
				if h := headersOf(t, r); string(r.Value) != want[i] || h.Synthetic != (i >= len(c.says)) || h.Seq != int64(i) {
					t.Errorf("event %d on the topic is %s with %+v", i, r.Value, h)
				}
			}
			if len(topic) != len(want) {
				t.Errorf("%d events are on the topic, want %d", len(topic), len(want))
			}
		})
	}
}
