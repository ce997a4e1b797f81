package partition

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
)

// Ids and names that are half a surrogate pair stay what they are, each another one, in records and in what a process
// that starts anew goes on from: after each of these events one does.
func TestPartition_HalvesOfSurrogatePairsSurviveARestart(t *testing.T) {
	const lines = `
		{"type":"RUN_STARTED","threadId":"t","runId":"\ud800","parentRunId":"\ud801"}
		{"type":"SUBAGENT_STARTED","subagentRunId":"\ud802","name":"n"}
		{"type":"SUBAGENT_STARTED","subagentRunId":"\ud803","name":"n"}
		{"type":"TEXT_MESSAGE_CHUNK","messageId":"\ud804","name":"\ud805","delta":"one "}
		{"type":"TEXT_MESSAGE_CHUNK","name":"\ud805","delta":"two"}
		{"type":"TOOL_CALL_CHUNK","toolCallId":"\ud806","toolCallName":"\ud807","parentMessageId":"\ud808","subagentRunId":"\ud802","delta":"1"}
		{"type":"TOOL_CALL_CHUNK","toolCallName":"\ud807","parentMessageId":"\ud808","subagentRunId":"\ud802","delta":"2"}
		{"type":"REASONING_MESSAGE_CHUNK","messageId":"\ud809","subagentRunId":"\ud803","delta":"3"}
		{"type":"REASONING_MESSAGE_CHUNK","subagentRunId":"\ud803","delta":"4"}
		{"type":"STEP_STARTED","stepName":"\ud80a"}
		{"type":"STEP_STARTED","stepName":"\ud80b"}
		{"type":"TEXT_MESSAGE_START","messageId":"\ud80c"}
		{"type":"TEXT_MESSAGE_START","messageId":"\ud80d"}
		{"type":"TEXT_MESSAGE_CONTENT","messageId":"\ud80c","delta":"5"}
		{"type":"TEXT_MESSAGE_CONTENT","messageId":"\ud80d","delta":"6"}
		{"type":"TEXT_MESSAGE_END","messageId":"\ud80c"}
		{"type":"TEXT_MESSAGE_END","messageId":"\ud80d"}
		{"type":"STEP_FINISHED","stepName":"\ud80a"}
		{"type":"STEP_FINISHED","stepName":"\ud80b"}
		{"type":"THINKING_START"}
		{"type":"THINKING_TEXT_MESSAGE_START"}
		{"type":"THINKING_TEXT_MESSAGE_CONTENT","delta":"7"}
		{"type":"THINKING_TEXT_MESSAGE_END"}
		{"type":"THINKING_END"}
		{"type":"TOOL_CALL_START","toolCallId":"\ud80e","toolCallName":"\ud80f"}
		{"type":"TOOL_CALL_ARGS","toolCallId":"\ud80e","delta":"8"}
		{"type":"TOOL_CALL_END","toolCallId":"\ud80e"}
		{"type":"TOOL_CALL_START","toolCallId":"\ud810","toolCallName":"\ud811"}
		{"type":"TOOL_CALL_END","toolCallId":"\ud810"}
		{"type":"TOOL_CALL_RESULT","messageId":"\ud812","toolCallId":"\ud80e","content":"9"}
		{"type":"TOOL_CALL_RESULT","messageId":"\ud813","toolCallId":"\ud806","content":"10"}
		{"type":"\ud814"}
		{"type":"\ud815"}
		{"type":"SUBAGENT_FINISHED","subagentRunId":"\ud802"}
		{"type":"SUBAGENT_FINISHED","subagentRunId":"\ud803"}
		{"type":"RUN_FINISHED","threadId":"t","runId":"r","usage":[{"model":"\ud816","inputTokens":1},{"model":"\ud817","inputTokens":2}]}`
	want := newSim(t, nil)
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		want.Send("t", "r", strings.TrimSpace(line))
	}
	want.all()
	got := newSim(t, nil)
	got.Events = want.Events
	for i := range got.Events {
		got.open(i%2 == 0)
		got.feed(1)
		got.Now = got.Now.Add(got.cfg.CheckpointMax)
		got.commit(true)
		got.checkHeads()
	}
	for _, r := range []*sim{want, got} {
		rec := r.run("r")
		equal(t, "spawnedBy", string(rec.SpawnedBy), half(0xd801))
		equal(t, "pendingToolCalls", []string(rec.PendingToolCalls), []string{half(0xd810)})
		equal(t, "toolCalls", rec.Stats.ToolCalls, agui.StringMap[int64]{half(0xd807): 1, half(0xd80f): 1, half(0xd811): 1})
		models := keysOf(rec.Stats.Usage)
		slices.Sort(models)
		equal(t, "models", models, []string{half(0xd816), half(0xd817)})
		equal(t, "events", []int64{rec.Stats.Events[half(0xd814)], rec.Stats.Events[half(0xd815)]}, []int64{1, 1})
		equal(t, "anomalies", rec.Stats.Anomalies, map[string]int64{"run-mismatch": 1})
	}
	wantMessages, _ := want.history("r")
	gotMessages, _ := got.history("r")
	equal(t, "messages", gotMessages, wantMessages)
	equal(t, "records", got.values(), want.values())
}

// half is half a surrogate pair as a Go string has it.
func half(r rune) string { return agui.TextOf(fmt.Appendf(nil, `"\u%04x"`, r)).String() }
