package fold

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Start begins the fold of a run. The argument by is how the parent was found, parent is the parent's history (zero without a parent), and
// input is the run's input (nil without one). The fold keeps events of the families in kept. Start also returns the input as it is
// recorded, with the parent's messages in place of messages that equal them in value.
func Start(run string, by lineage.ParentBy, parent lineage.History, input *agui.RunAgentInput, kept agui.Families) (*compact.Run,
	*agui.RunAgentInput) {
	renamed := false
	if input != nil {
		in := *input
		if lineage.Normalised(by, parent, input) {
			in.Messages = compactedAll(nil, in.Messages)
		} else {
			in.Messages, renamed = lineage.Named(run, parent.Messages, in.Messages)
			in.Messages = adopt(parent.Messages, in.Messages)
		}
		input = &in
	}
	fold := lineage.StartHistory(by, parent, input).Fold()
	fold.Name(run)
	if renamed {
		fold.Rename()
	}
	fold.Keep(kept)
	return fold, input
}

// FillInput sets the members of a record that describe an input as Start returned it. The record must already have
// ParentBy and Base. The argument parent is the history that was passed to Start, base is the history of the record's
// base, and sum is the hash of the input as received.
func FillInput(rec *record.Run, parent, base lineage.History, input *agui.RunAgentInput, sum string) {
	if input == nil {
		return
	}
	rec.Input = agui.Without(input.Raw, "messages")
	rec.InputForm, rec.Rewrote = "", nil
	switch {
	case !lineage.Normalised(lineage.ParentBy(rec.ParentBy), parent, input):
		rec.InputMessages, rec.InputLayout = lineage.NormalizeInput(base.Messages, input.Messages)
		for _, r := range lineage.RewritesOf(parent.Messages, input.Messages) {
			rec.Rewrote = append(rec.Rewrote, string(r))
		}
	case rec.Base != "": // the input is already in normalised form
		rec.InputForm, rec.InputMessages, rec.InputLayout = record.InputNormalised, slices.Clone(input.Messages), nil
	default:
		rec.InputForm, rec.InputLayout = record.InputNormalised, nil
		rec.InputMessages = slices.Concat(lineage.InputMessages(parent.Messages), input.Messages)
	}
	rec.Resumes = input.Resume
	rec.InputSHA256 = sum
}

// At returns a fold's current history in the form of records. The argument base has that form already, so messages that
// the fold shares with base are not read.
func At(fold *compact.Run, base lineage.History) lineage.History {
	at := lineage.History{Messages: MessagesAt(fold, base.Messages), State: fold.State()}
	if len(at.State) != len(base.State) || len(at.State) > 0 && &at.State[0] != &base.State[0] {
		at.State = record.Compacted(at.State)
	}
	return at
}

// MessagesAt returns the messages of At.
func MessagesAt(fold *compact.Run, base []agui.Message) []agui.Message {
	return compactedAll(base, fold.Messages())
}

// Fill sets the members of a record that describe a fold and its events. The caller sets ids, lineage, input, history
// key and raw ranges. If the fold only appends to a base that it shares, the base is not read.
func Fill(rec *record.Run, fold *compact.Run, t *Tally, base lineage.History) {
	if added, only := base.Added(fold); only {
		rec.Messages, rec.Layout = slices.Clip(compactedAll(nil, added)), nil
		if len(added) == 0 {
			rec.Messages = nil
		}
	} else {
		rec.Messages, rec.Layout = agui.Diff(base.Messages, At(fold, base).Messages)
	}
	rec.MessageCount = fold.MessageCount()
	before := base.State
	if before == nil {
		before = json.RawMessage(`{}`)
	}
	if state := record.Compacted(fold.State()); !bytes.Equal(state, before) {
		rec.State = state
	}
	sum := fold.Summary()
	rec.Status = record.Status(sum.Status)
	rec.Started, rec.Events, rec.Terminal = sum.Started, sum.Kept, sum.Terminal
	rec.Interrupts, rec.PendingToolCalls = sum.Interrupts, sum.PendingToolCalls
	rec.StartedAt = t.StartedAt
	rec.Stats = record.Stats{
		Events: sum.Events, EventBytes: sum.EventBytes, Messages: len(rec.Messages),
		ToolCalls: NotEmpty(sum.ToolCalls), Usage: usageOf(sum.Terminal), Anomalies: NotEmpty(sum.Anomalies),
		TimeToFirstToken: t.TimeToFirstToken, ToolCallTimes: maps.Clone(t.calls.of),
	}
	if fold.Ended() {
		ended := t.EndedAt
		rec.EndedAt = &ended
		ms := max(0, ended.Sub(t.StartedAt).Milliseconds()) // may be negative: agents mix events with and without their own time
		rec.Stats.Duration = &ms
	}
}

// Fill sets the members of a record that describe the run, as Fill does for a fold. Before the first event, the caller resolves the parent
// as if that came now, and passes the fold that it would have.
func (r *Run) Fill(rec *record.Run, fold *compact.Run, base lineage.History) {
	Fill(rec, fold, r.Tally, base)
	rec.Agent, rec.Labels, rec.Traceparent = r.Producer.Agent, r.Producer.Labels, r.Producer.Traceparent
	rec.Synthetic, rec.FirstMalformed = r.Synthetic, r.FirstMalformed
	if r.Fold == nil {
		rec.Stats.Anomalies = NotEmpty(r.Early)
	}
	rec.Raw.Events, rec.Raw.SHA256 = r.Tally.Events, r.Tally.SHA256()
}

// NotEmpty returns a copy of counts for a record: nil if there are none.
func NotEmpty(m map[string]int64) map[string]int64 {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}

// usageOf returns the token usage in a terminal event, sorted by provider and model.
func usageOf(terminal json.RawMessage) []record.TokenUsage {
	var all []record.TokenUsage
	type source struct{ provider, model agui.String }
	at := map[source]int{}
	for u := range agui.Elements(agui.Lookup(terminal, agui.FieldUsage.String())) {
		name := func(member string) agui.String {
			v := agui.Lookup(u, member)
			if !agui.IsString(v) {
				return ""
			}
			return agui.String(agui.TextOf(v).String())
		}
		count := func(member string) *int64 {
			n, err := strconv.ParseFloat(string(agui.Lookup(u, member)), 64)
			if err != nil { // absent
				return nil
			}
			return new(int64(n))
		}
		one := record.TokenUsage{
			Provider: name("provider"), Model: name("model"), InputTokens: count("inputTokens"), OutputTokens: count("outputTokens"),
			ReasoningTokens: count("reasoningTokens"), CachedInputTokens: count("cachedInputTokens"),
			CacheWriteInputTokens: count("cacheWriteInputTokens"),
		}
		if i, again := at[source{one.Provider, one.Model}]; again {
			all[i].Add(one)
		} else {
			at[source{one.Provider, one.Model}] = len(all)
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b record.TokenUsage) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Model, b.Model))
	})
	return all
}

// InputOf returns the input in a RUN_STARTED of the run and the hash of its bytes; nil if there is none.
func InputOf(ev *agui.Event, run string) (*agui.RunAgentInput, string) {
	in := ev.Input(run)
	if in == nil {
		return nil, ""
	}
	return in, record.SHA256(agui.Lookup(ev.Raw, agui.FieldInput.String()))
}
