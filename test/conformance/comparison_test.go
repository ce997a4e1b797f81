package conformance_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/test/conformance"
)

// comparison holds runs to the official client. Where the two part as a row of docs/fold.md says, that is counted and the
// difference applied: another event, or none, is compared in the place of the one that met it. All else fails.
type comparison struct {
	t      rapid.TB
	client *conformance.Client
}

// compared is a run of which both make the same.
type compared struct {
	start  conformance.Start
	events []json.RawMessage // up to the first terminal one, with others in the place of those that met a difference
	want   conformance.Result
	got    folded
}

// run compares one run. Its start is what the client holds, history the same for Skein.
func (c comparison) run(name string, history lineage.History, start conformance.Start, events []json.RawMessage) compared {
	c.t.Helper()
	r, d := c.compare(history, start, events)
	if d != "" {
		c.fail(failedCase{r}, "%s: %s", name, d)
	}
	countValues(r.want, r.got)
	return r
}

// compare returns how the two part otherwise than by a documented difference, or "".
func (c comparison) compare(history lineage.History, start conformance.Start, events []json.RawMessage) (r compared, d string) {
	c.t.Helper()
	r = compared{start: start, events: cut(events)}
	for range mostPartings {
		r.want, r.got = c.both(history, r.start, r.events)
		d := differs(r.want, r.got)
		if d == "" {
			return r, ""
		}
		p := c.part(history, r.start, r.events)
		instead, ok := p.recognised()
		if !ok {
			return r, d + p.String()
		}
		r.events = cut(slices.Concat(r.events[:p.at], instead, r.events[p.at+1:]))
	}
	return r, "it meets documented differences again and again: " + differs(r.want, r.got)
}

// mostPartings is how many of a run's events may meet documented differences, one after the other.
const mostPartings = 60

// both folds events with the client and with Skein.
func (c comparison) both(history lineage.History, start conformance.Start, events []json.RawMessage) (conformance.Result, folded) {
	c.t.Helper()
	got := foldFrom(c.t, history, events)
	want := c.client.Play(c.t, conformance.Job{Start: start, Events: events, Upgrade: true, Schema: true, Skip: true, Verify: true})[0]
	want.Conversation = withOurThinking(want.Conversation, got.Conversation)
	return want, got
}

// parting is the event at which the client and Skein part: before it they are the same.
type parting struct {
	at     int
	event  json.RawMessage
	value  obj               // the event
	sent   []json.RawMessage // the events before it
	before conformance.Conversation
	want   conformance.Result
	got    folded
	// Of a patch: the operation at which they part, its place, the document before it, and whether Skein has left that as it was.
	op        obj
	nth       int
	doc       any
	unchanged bool
}

// part finds the event in a run that ends differently. There may be several; it is one of them.
func (c comparison) part(history lineage.History, start conformance.Start, events []json.RawMessage) *parting {
	p := &parting{}
	p.want, p.got = c.both(history, start, events)
	equal, different := -1, len(events) // -1: nobody has asked whether they are the same before the first event
	for different-max(equal, 0) > 1 {
		middle := (max(equal, 0) + different) / 2
		want, got := c.both(history, start, events[:middle])
		if differs(want, got) == "" {
			equal, p.before = middle, got.Conversation
		} else {
			different, p.want, p.got = middle, want, got
		}
	}
	if equal < 0 {
		_, got := c.both(history, start, nil)
		p.before = got.Conversation
	}
	if different == 0 {
		c.t.Fatalf("they part before the first event: %s", differs(p.want, p.got))
	}
	p.at, p.event, p.sent = different-1, events[different-1], events[:different-1]
	p.value, _ = parsed(c.t, p.event).(obj)
	c.partingOperation(p)
	return p
}

// partingOperation finds the operation of a patch at which the two part: the last of the shortest patch that does.
func (c comparison) partingOperation(p *parting) {
	key := map[any]string{string(agui.StateDelta): "delta", string(agui.ActivityDelta): "patch"}[p.value["type"]]
	ops, _ := p.value[key].([]any)
	if len(ops) == 0 {
		return
	}
	// Of all that both hold only the document matters, which may be an activity's.
	start := conformance.Start{Messages: json.RawMessage(`[]`), State: p.before.State}
	for _, m := range p.messages() {
		if key == "patch" && m["id"] == p.value["messageId"] {
			start = conformance.Start{Messages: encode([]any{m}), State: json.RawMessage(`{}`)}
			break
		}
	}
	only := history(c.t, conformance.Conversation(start))
	parts := func(ops []any) (folded, bool) {
		want, got := c.both(only, start, []json.RawMessage{encode(obj{"type": p.value["type"], key: ops, "messageId": p.value["messageId"],
			"activityType": "plan"})})
		return got, differs(want, got) != ""
	}
	// What becomes of the document does not tell that only one of the two takes a test for passed.
	passed := obj{"op": "add", "path": "", "value": obj{"passed": true}}
	for nth := range ops {
		got, differ := parts(ops[:nth+1])
		if !differ {
			if _, differ = parts(append(slices.Clone(ops[:nth+1]), passed)); !differ {
				continue
			}
		}
		if op, ok := ops[nth].(obj); ok {
			before, _ := parts(ops[:nth])
			p.op, p.nth, p.doc = op, nth, document(c.t, before.run, p.value)
			failed := got.run.Summary().Anomalies
			p.unchanged = failed["state-patch-failed"]+failed["activity-patch-failed"] > 0
		}
		return
	}
}

// withoutOperation is the event without the operation at which the two part.
func (p *parting) withoutOperation() json.RawMessage {
	return p.with(func(event obj) {
		for _, key := range []string{"delta", "patch"} {
			if ops, ok := event[key].([]any); ok {
				event[key] = slices.Delete(ops, p.nth, p.nth+1)
			}
		}
	})
}

// with is the event with something changed.
func (p *parting) with(change func(event obj)) json.RawMessage {
	event := clone(p.value).(obj)
	change(event)
	return encode(event)
}

// onlyForClient and onlyForSkein say who takes the event for malformed.
func (p *parting) onlyForClient() bool {
	return slices.Contains(rejected(p.want), p.at) && !slices.Contains(p.got.malformed, p.at)
}

func (p *parting) onlyForSkein() bool {
	return !slices.Contains(rejected(p.want), p.at) && slices.Contains(p.got.malformed, p.at)
}

// recognised tells the difference that the event meets, counts it, and returns what is compared in its place.
func (p *parting) recognised() ([]json.RawMessage, bool) {
	for _, r := range documentedRows {
		if r.event == nil {
			continue
		}
		if instead, ok := r.event(p); ok {
			report.met(r.name)
			if instead == nil {
				return nil, true
			}
			return []json.RawMessage{instead}, true
		}
	}
	return nil, false
}

func (p *parting) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nat event %d: %.2000s\nbefore: messages %.2000s state %.2000s\nof that event: %s", p.at, p.event, p.before.Messages, p.before.State, differs(p.want, p.got))
	if p.op != nil {
		fmt.Fprintf(&b, "\noperation %d: %.2000s\non %.2000s", p.nth, encode(p.op), encode(p.doc))
	}
	return b.String()
}

// differs compares all that the client says about a stream with what Skein says.
func differs(want conformance.Result, got folded) string {
	if want.Unwritable != "" {
		return "the client holds what no JSON can: " + want.Unwritable
	}
	if want.State == nil {
		return "the client's state is undefined"
	}
	if d := verdictDiffers(want, got); d != "" {
		return d
	}
	if want.Violation == nil {
		if got.violated >= 0 {
			return fmt.Sprintf("event %d counts %v, and the client's verification lets it pass", got.violated, got.rules)
		}
		return ""
	}
	rule, err := ruleOf(want.Violation.Message)
	switch {
	case err != nil:
		return err.Error()
	case got.violated != want.Violation.Index || !slices.Contains(got.rules, rule):
		return fmt.Sprintf("the client's verification ends at event %d with %s (%s), the fold counts %v at event %d",
			want.Violation.Index, rule, want.Violation.Message, got.rules, got.violated)
	}
	return ""
}
