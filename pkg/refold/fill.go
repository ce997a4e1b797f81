package refold

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Start begins a run's fold from its parent's history (the zero History without a parent) and its
// input, nil where there is none. It returns the input as it is recorded: what equals a message of the
// parent in value is that message.
func Start(parent lineage.History, input *agui.RunAgentInput) (*compact.Run, *agui.RunAgentInput) {
	if input != nil {
		in := *input
		in.Messages = adopt(parent.Messages, in.Messages)
		input = &in
	}
	from := lineage.StartHistory(parent, input)
	return compact.New(from.Messages, from.State), input
}

// FillInput fills what a record says of an input that Start returned; parent is what Start was given, base
// the history of the record's base, sum the hash of the input as it came.
func FillInput(rec *record.Run, parent, base lineage.History, input *agui.RunAgentInput, sum string) {
	if input == nil {
		return
	}
	rec.Input = agui.Without(input.Raw, "messages")
	rec.InputMessages, rec.InputLayout = lineage.NormalizeInput(base.Messages, input.Messages)
	rec.Rewrote = nil
	for _, r := range lineage.RewritesOf(parent.Messages, input.Messages) {
		rec.Rewrote = append(rec.Rewrote, string(r))
	}
	rec.Resumes = input.Resume
	rec.InputSHA256 = sum
}

// Fill fills what a record says of a fold and its events, and returns the history at hand. Ids, lineage,
// input, history key and the place in the log are the caller's.
func Fill(rec *record.Run, fold *compact.Run, t *Tally, base lineage.History) lineage.History {
	at := lineage.History{Messages: compactedAll(base.Messages, fold.Messages()), State: Compacted(fold.State())}
	rec.Messages, rec.Layout = agui.Diff(base.Messages, at.Messages)
	rec.MessageCount = len(at.Messages)
	before := base.State
	if before == nil {
		before = json.RawMessage(`{}`)
	}
	if !bytes.Equal(at.State, before) {
		rec.State = at.State
	}
	sum := fold.Summary()
	rec.Status = record.Status(sum.Status)
	rec.Started, rec.Events, rec.Terminal = sum.Started, sum.Kept, sum.Terminal
	rec.Interrupts, rec.PendingToolCalls = sum.Interrupts, sum.PendingToolCalls
	rec.StartedAt = t.StartedAt
	rec.Stats = record.Stats{
		Events: maps.Clone(sum.Events), EventBytes: maps.Clone(sum.EventBytes), Messages: len(rec.Messages),
		ToolCalls: NotEmpty(sum.ToolCalls), Usage: usageOf(sum.Usage), Anomalies: NotEmpty(sum.Anomalies), TimeToFirstToken: t.TimeToFirstToken,
	}
	if fold.Ended() {
		ended := t.EndedAt
		rec.EndedAt = &ended
		ms := max(0, ended.Sub(t.StartedAt).Milliseconds()) // agents mix events with and without a time of their own
		rec.Stats.Duration = &ms
	}
	return at
}

// NotEmpty is a copy of counts as a record holds them: nil where there are none.
func NotEmpty(m map[string]int64) map[string]int64 {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}

func usageOf(usage map[string]map[string]int64) map[string]record.TokenUsage {
	if len(usage) == 0 {
		return nil
	}
	out := make(map[string]record.TokenUsage, len(usage))
	for model, n := range usage {
		out[model] = record.TokenUsage{
			InputTokens: n["inputTokens"], OutputTokens: n["outputTokens"], TotalTokens: n["totalTokens"],
			ReasoningTokens: n["reasoningTokens"], CachedInputTokens: n["cachedInputTokens"], CacheWriteInputTokens: n["cacheWriteInputTokens"],
		}
	}
	return out
}

// InputOf returns the input that a RUN_STARTED carries and the hash of its bytes; nil where it has none.
func InputOf(ev *agui.Event) (*agui.RunAgentInput, string, error) {
	in := ev.Input()
	if in == nil {
		return nil, "", nil
	}
	own, err := agui.DecodeInput(bytes.Clone(in.Raw)) // the event's bytes are not ours to keep
	if err != nil {
		return nil, "", fmt.Errorf("reading input of event: %w", err)
	}
	return own, SHA256(agui.Lookup(ev.Raw, agui.FieldInput.String())), nil
}
