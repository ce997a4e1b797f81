package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
)

// RolloutAgent watches a rollout for some minutes, in a run of RolloutThread. It is called through Skein's proxy, which can stop its run.
const (
	RolloutAgent  = "rollout"
	RolloutThread = "checkout-rollout"
)

// pace is the pause before each event of a rollout: about that of a model's words.
const pace = 400 * time.Millisecond

// ServeRollout serves the agent until ctx ends, and returns its URL.
func ServeRollout(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("serving the demo's agent: %w", err)
	}
	s := &http.Server{
		Handler: http.HandlerFunc(rollOut), ReadHeaderTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() { _ = s.Serve(l) }()                                                // until Shutdown
	context.AfterFunc(ctx, func() { _ = s.Shutdown(context.WithoutCancel(ctx)) }) // waits for the last event
	return "http://" + l.Addr().String(), nil
}

// RolloutInput returns the input of a run of the agent.
func RolloutInput(run string) []byte {
	return fmt.Appendf(nil, `{"threadId":%q,"runId":%q,"state":{},"messages":[{"id":"ask-%[2]s","role":"user",`+
		`"content":"Roll checkout 2.9.0 out, five percent at a time, and watch it."}],"tools":[],"context":[],"forwardedProps":{}}`, RolloutThread, run)
}

func rollOut(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var in *agui.RunAgentInput
	if err == nil {
		in, err = agui.DecodeInput(body, "")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range rollout(in.ThreadID, in.RunID) {
		e["timestamp"] = time.Now().UnixMilli()
		line, err := json.Marshal(e)
		if err != nil { // impossible: texts and numbers
			return
		}
		_, _ = fmt.Fprintf(w, "data: %s\n\n", line) // who does not read it ends the context
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(pace):
		case <-r.Context().Done():
			_, _ = fmt.Fprint(w, `data: {"type":"RUN_ERROR","message":"the demo was ended"}`+"\n\n")
			return
		}
	}
}

type event = map[string]any

func rollout(thread, run string) []event {
	out := []event{
		{"type": "RUN_STARTED", "threadId": thread, "runId": run},
		{"type": "STATE_SNAPSHOT", "snapshot": event{"version": "checkout 2.9.0", "percent": 0}},
	}
	for percent := 5; percent <= 100; percent += 5 {
		call, message := fmt.Sprintf("%s-call%d", run, percent), fmt.Sprintf("%s-a%d", run, percent)
		errors, ms := percent*percent%7, 190+percent*37%40
		out = append(out,
			event{"type": "STATE_DELTA", "delta": []event{{"op": "replace", "path": "/percent", "value": percent}}},
			event{"type": "TOOL_CALL_START", "toolCallId": call, "toolCallName": "get_metrics"},
			event{"type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": `{"service":"checkout","version":"2.9.0"}`},
			event{"type": "TOOL_CALL_END", "toolCallId": call},
			event{"type": "TOOL_CALL_RESULT", "messageId": call + "-r", "toolCallId": call, "role": "tool",
				"content": fmt.Sprintf(`{"orders":%d,"errors":%d,"p95":%d}`, percent*83, errors, ms)},
			event{"type": "TEXT_MESSAGE_START", "messageId": message, "role": "assistant"})
		for _, word := range strings.SplitAfter(fmt.Sprintf("%d %% of the orders take 2.9.0: %d of %d failed, and p95 is %d ms.",
			percent, errors, percent*83, ms), " ") {
			out = append(out, event{"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": word})
		}
		out = append(out, event{"type": "TEXT_MESSAGE_END", "messageId": message})
	}
	return append(out, event{"type": "RUN_FINISHED", "threadId": thread, "runId": run})
}
