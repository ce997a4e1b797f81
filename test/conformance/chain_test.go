package conformance_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/test/conformance"
)

// inputForms are what an input on RUN_STARTED has of the conversation: all that was held and something new, only that as AG-UI's
// page on serialisation has it, or nothing. Or there is no input.
var inputForms = []string{"normalised", "normalised", "whole", "empty", "none"}

// One client that plays all runs of an unbranched thread in turn holds what Skein restores, after each of them.
func TestChain_OneClientHoldsWhatSkeinRestores(t *testing.T) {
	client := conformance.Need(t)
	fewerChecks(t, 20) // a chain is several runs, and its fold is a whole partition's
	writesFailedCase(t)
	forms := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		ch := chain{gen: gen{t: rt}.sound(), c: comparison{rt, client}, held: conformance.Start{Messages: json.RawMessage(`[]`), State: json.RawMessage(`{}`)}}
		for run := range 3 + ch.n(3) {
			forms[ch.next(fmt.Sprint("run", run))]++
		}
		ch.compare()
	})
	t.Logf("inputs of runs: %v", forms)
}

// chain is a thread in the making, whose runs follow one another.
type chain struct {
	gen
	c    comparison
	held conformance.Start // by the client, after the runs so far
	runs []chainRun
}

type chainRun struct {
	id     string
	called conformance.Start // the messages of the input, where it has one
	events []json.RawMessage
	left   conformance.Conversation
}

// next adds a run, and returns the form of its input.
func (ch *chain) next(id string) string {
	before := history(ch.t, conformance.Conversation(ch.held))
	messages := list(lineage.InputMessages(before.Messages))
	started := obj{"type": string(agui.RunStarted), "threadId": "t", "runId": id}
	said := agui.Message{}
	if err := said.UnmarshalJSON(encode(obj{"id": "said " + id, "role": "user", "content": ch.word()})); err != nil {
		ch.t.Fatal(err)
	}
	form := pick(ch.gen, inputForms)
	if form == "whole" && strings.Contains(string(ch.held.Messages), `"thinking-`) {
		form = "none" // the client's own ids are others
	}
	run := chainRun{id: id}
	switch form {
	case "whole":
		run.called.Messages = encode(append(messages, said))
	case "normalised":
		run.called.Messages = encode([]agui.Message{said})
	case "empty":
		run.called.Messages = json.RawMessage(`[]`)
	}
	if form != "none" {
		started["input"] = obj{"threadId": "t", "runId": id, "messages": run.called.Messages, "tools": []any{}, "context": []any{}}
	}
	// Who held nothing but activities is not named by an input.
	if n := len(ch.runs); n > 0 && (ch.chance(50) || len(messages) == 0) {
		started["parentRunId"] = ch.runs[n-1].id
	}
	played := ch.c.run(id, before, ch.held, append([]json.RawMessage{encode(started)}, ch.rest(id, before, ch.chance(60))...))
	run.events, run.left = played.events, played.want.Conversation
	ch.runs, ch.held = append(ch.runs, run), conformance.Start(run.left)
	return form
}

// compare holds what Skein's records give to what the client held after each run, and to one client that plays all.
func (ch *chain) compare() {
	var sources []partition.Source
	var sent []json.RawMessage
	for _, r := range ch.runs {
		sent = append(sent, r.events...)
		for _, e := range r.events {
			sources = append(sources, event(r.id, e))
		}
	}
	fail := func(of conformance.Conversation, format string, args ...any) {
		want := conformance.Result{Conversation: of}
		ch.c.fail(failedCase{compared{events: sent, want: want}}, format, args...)
	}
	byID := offline(ch.t, "t", sources)
	var parent lineage.History
	for i, r := range ch.runs {
		got, err := restore(byID, r.id)
		if err != nil {
			ch.t.Fatal(err)
		}
		d := conformance.Diff(r.left, conformance.Conversation{Messages: encode(list(got.Messages)), State: got.State})
		start := startParting{t: ch.t, parent: parent, called: r.called, want: conformance.Start(r.left), got: got}
		if d != "" {
			if start.recognised() {
				return
			}
			fail(r.left, "run %d, parent %q: %s", i, byID[r.id].ParentRunID, d)
		}
		parent = got
	}
	last := ch.runs[len(ch.runs)-1].left
	one := ch.c.reduce(conformance.Job{Events: sent, Upgrade: true, Schema: true, Skip: true})
	one.Conversation = withOurThinking(one.Conversation, last)
	if d := conformance.Diff(one.Conversation, last); d != "" && !ch.sharedOverRuns() {
		fail(one.Conversation, "one client for all runs: %s", d)
	}
}

// sharedOverRuns reports that a message may stand in several places from one run to the next, which is one for the client.
func (ch *chain) sharedOverRuns() bool {
	for _, r := range ch.runs[:len(ch.runs)-1] {
		if !unique(history(ch.t, r.left).Messages) {
			report.met(sharedOverRuns)
			return true
		}
	}
	return false
}
