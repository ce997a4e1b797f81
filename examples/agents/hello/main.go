// Command hello is an AG-UI agent of the standard library alone: it answers each question by the weather in Zürich, slowly.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

const events = `{"type":"RUN_STARTED","threadId":$THREAD,"runId":$RUN}
{"type":"TEXT_MESSAGE_START","messageId":"a1","role":"assistant"}
{"type":"TEXT_MESSAGE_CONTENT","messageId":"a1","delta":"Let me "}
{"type":"TEXT_MESSAGE_CONTENT","messageId":"a1","delta":"look."}
{"type":"TEXT_MESSAGE_END","messageId":"a1"}
{"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"weather","parentMessageId":"a1"}
{"type":"TOOL_CALL_ARGS","toolCallId":"c1","delta":"{\"city\":"}
{"type":"TOOL_CALL_ARGS","toolCallId":"c1","delta":"\"Zürich\"}"}
{"type":"TOOL_CALL_END","toolCallId":"c1"}
{"type":"TOOL_CALL_RESULT","messageId":"t1","toolCallId":"c1","content":"{\"celsius\":12}","role":"tool"}
{"type":"STATE_DELTA","delta":[{"op":"add","path":"/city","value":"Zürich"}]}
{"type":"TEXT_MESSAGE_START","messageId":"a2","role":"assistant"}
{"type":"TEXT_MESSAGE_CONTENT","messageId":"a2","delta":"12 °C."}
{"type":"TEXT_MESSAGE_END","messageId":"a2"}
{"type":"RUN_FINISHED","threadId":$THREAD,"runId":$RUN}`

func answer(w http.ResponseWriter, r *http.Request) {
	var input struct{ ThreadID, RunID json.RawMessage }
	if err := json.NewDecoder(r.Body).Decode(&input); err != nil || input.ThreadID == nil || input.RunID == nil {
		http.Error(w, "POST a RunAgentInput", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	ids := strings.NewReplacer("$THREAD", string(input.ThreadID), "$RUN", string(input.RunID))
	for event := range strings.SplitSeq(events, "\n") {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", ids.Replace(event)) // a caller that has left gets no more
		_ = http.NewResponseController(w).Flush()
		time.Sleep(100 * time.Millisecond)
	}
}

func main() {
	fmt.Fprintln(os.Stderr, "an agent on http://127.0.0.1:8000/")
	panic(http.ListenAndServe("127.0.0.1:8000", http.HandlerFunc(answer)))
}
