package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/record"
)

func newShow(out *output) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show THREAD [RUN]",
		GroupID: groupRead,
		Short:   "Show how a run ended, what it waits for, its statistics",
		Long: `Show details of a run besides its messages and state: why it failed, the interrupts that it waits for,
how its parent was found, its statistics and anomalies, and where its events lie, with their hash.

Without RUN it shows the tip of the thread with the latest start.`,
		Example: `  skein show my-thread
  skein show my-thread run-7 --json | jq .stats.anomalies`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	onServer(cmd, out, func(ctx context.Context, c *client.Client, args []string) error {
		path, run := runPath(args)
		if run == "" {
			var t struct{ LastRunID string }
			if _, err := c.Fetch(ctx, path, nil, &t); err != nil {
				return err
			}
			path = client.RunPath(args[0], t.LastRunID)
		}
		var d details
		body, err := c.Fetch(ctx, path, nil, &d)
		if err != nil {
			return err
		}
		return out.result(body, d.text(out))
	})
	jsonFlags(cmd, out)
	return cmd
}

// details is the part of a run's answer that the command shows.
type details struct {
	ThreadID, RunID, ClientRunID, Status, Agent, TraceID, Record string
	record.Lineage
	Rewrote, PendingToolCalls     []string
	Labels                        map[string]string
	StartedAt                     time.Time
	EndedAt                       *time.Time
	Terminal                      json.RawMessage
	LateError                     *record.LateError
	Interrupts                    []json.RawMessage
	MessageCount, FoldVersion     int
	Stats                         record.Stats
	Raw                           record.Raw
	Synthetic, Truncated, RawLost bool
}

// parentNames describes how a run's parent was found.
var parentNames = map[record.ParentBy]string{
	record.ParentExplicit: "named by the agent",
	record.ParentContent:  "found by the messages of the run's input",
	record.ParentLatest:   "the latest run of the thread, as there was no input",
}

// showMargin is the width of the column of names, to the left of the values.
const showMargin = 12

func (d details) text(out *output) string {
	var b strings.Builder
	head := fmt.Sprintf("run %s in thread %s: %s", oneLine(d.RunID, 200), oneLine(d.ThreadID, 200), d.Status)
	b.WriteString(out.bold(head) + "\n")
	line := func(name, text string) {
		if text != "" {
			b.WriteString(labelled("", fmt.Sprintf("%-*s", showMargin, name), text, out.width()))
		}
	}
	line("error", runError(d.Terminal))
	if d.LateError != nil {
		line("error", runError(d.LateError.Event)+"\nIt came after the run had finished.")
	}
	line("waits for", strings.Join(interruptLines(d.Interrupts), "\n"))
	if len(d.PendingToolCalls) > 0 {
		line("tool calls", "without a result: "+strings.Join(d.PendingToolCalls, ", "))
	}
	line("honesty", strings.Join(d.honesty(), "\n"))
	line("client id", d.ClientRunID)
	parent := "none: the run is a root"
	if d.ParentRunID != "" {
		parent = d.ParentRunID + " (" + cmp.Or(parentNames[d.ParentBy], string(d.ParentBy)) + ")"
	}
	line("parent", parent)
	line("branch", fmt.Sprintf("%s, depth %d, root %s", d.BranchID, d.Depth, d.RootRunID))
	line("agent", d.Agent)
	var labels []string
	for _, k := range slices.Sorted(maps.Keys(d.Labels)) {
		labels = append(labels, k+"="+d.Labels[k])
	}
	line("labels", strings.Join(labels, ", "))
	line("trace", d.TraceID)
	line("time", d.times())
	line("messages", fmt.Sprintf("%d of its own, %d in the history", d.Stats.Messages, d.MessageCount))
	line("events", fmt.Sprintf("%d: %s", d.Raw.Events, tally(d.Stats.Events)))
	line("tools", tally(d.Stats.ToolCalls))
	line("tokens", d.tokens())
	line("anomalies", tally(d.Stats.Anomalies))
	line("raw", fmt.Sprintf("skein.events %d:%d to %d:%d\nsha256 %s",
		d.Raw.Partition, d.Raw.First, d.Raw.Partition, d.Raw.Next-1, d.Raw.SHA256))
	line("record", fmt.Sprintf("skein.runs %s, fold version %d", d.Record, d.FoldVersion))
	return b.String()
}

// honesty lists the ways in which the record is inexact.
func (d details) honesty() []string {
	var out []string
	if d.Synthetic {
		out = append(out, "the end is not the agent's: Skein made it")
	}
	out = append(out, conversation{History: client.History{Limits: client.Limits{Truncated: d.Truncated, RawLost: d.RawLost}}}.remarks()...)
	if len(d.Rewrote) > 0 {
		out = append(out, "the input departs from the parent's history: "+strings.Join(d.Rewrote, ", "))
	}
	return out
}

func (d details) times() string {
	text := d.StartedAt.UTC().Format(time.RFC3339)
	if d.EndedAt != nil {
		text += " to " + d.EndedAt.UTC().Format(time.RFC3339)
	} else {
		text = "since " + text
	}
	if ms := d.Stats.Duration; ms != nil {
		text += fmt.Sprintf(", took %v", time.Duration(*ms)*time.Millisecond)
	}
	if ms := d.Stats.TimeToFirstToken; ms != nil {
		text += fmt.Sprintf(", first token after %v", time.Duration(*ms)*time.Millisecond)
	}
	return text
}

func (d details) tokens() string {
	var lines []string
	for _, u := range d.Stats.Usage {
		model := cmp.Or(string(u.Model), "(no model named)")
		if u.Provider != "" {
			model += " (" + string(u.Provider) + ")"
		}
		lines = append(lines, fmt.Sprintf("%s: %s in, %s out", model, countOrDash(u.InputTokens), countOrDash(u.OutputTokens)))
	}
	return strings.Join(lines, "\n")
}

// tally formats counts with their names, the largest count first.
func tally[K ~string, N int | int64](m map[K]N) string {
	names := slices.SortedFunc(maps.Keys(m), func(a, b K) int { return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b)) })
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = fmt.Sprintf("%s %d", oneLine(string(name), 200), m[name])
	}
	return strings.Join(list, ", ")
}

// runError returns the text of a RUN_ERROR; "" for another event.
func runError(terminal json.RawMessage) string {
	var e struct {
		Type agui.Type
		client.RunFailure
	}
	if json.Unmarshal(terminal, &e) != nil || e.Type != agui.RunError {
		return ""
	}
	return e.String()
}

// interruptLines returns a line for each interrupt: its id, its reason, its message and the tool call that waits for it. It
// prints an interrupt without an id as JSON.
func interruptLines(list []json.RawMessage) []string {
	lines := make([]string, len(list))
	for i, raw := range list {
		var in struct{ ID, Reason, Message, ToolCallID string }
		_ = json.Unmarshal(raw, &in) // an interrupt of another form has no id
		if in.ID == "" {
			lines[i] = string(raw)
			continue
		}
		lines[i] = "interrupt " + in.ID
		for _, text := range []string{in.Reason, in.Message} {
			if text != "" {
				lines[i] += ": " + text
			}
		}
		if in.ToolCallID != "" {
			lines[i] += " (tool call " + in.ToolCallID + ")"
		}
	}
	return lines
}
