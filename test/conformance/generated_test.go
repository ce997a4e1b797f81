package conformance_test

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/test/conformance"
)

// foldStream folds a generated stream with pkg/compact, up to its first terminal event.
func foldStream(s stream) (conformance.Conversation, map[string]int64, error) {
	var messages []agui.Message
	if err := json.Unmarshal(s.start, &messages); err != nil {
		return conformance.Conversation{}, nil, err
	}
	run := compact.New(messages, s.state)
	for _, raw := range s.events {
		ev, err := agui.Decode(raw)
		if err == nil {
			err = run.Apply(ev)
		}
		if err != nil && !agui.IsMalformed(err) {
			return conformance.Conversation{}, nil, err
		}
		if run.Ended() {
			break
		}
	}
	b, err := json.Marshal(run.Messages())
	return conformance.Conversation{Messages: b, State: run.State()}, run.Summary().Anomalies, err
}

// cut returns the events up to the first terminal one that the schema accepts: what comes after it
// is none of the run.
func cut(events []json.RawMessage) []json.RawMessage {
	for i, raw := range events {
		if ev, err := agui.Decode(raw); err == nil && (ev.Type == agui.RunFinished || ev.Type == agui.RunError) {
			return events[:i+1]
		}
	}
	return events
}

// TestGenerated_EqualsTheOfficialClient folds generated streams, whole and spoiled, with Skein and
// with the official client. Set -rapid.checks for more streams; a failure prints its seed.
func TestGenerated_EqualsTheOfficialClient(t *testing.T) {
	client, ok := conformance.Live(t)
	if !ok {
		t.Skip("generated streams have no checked-in results; install Node 20 and run: make conformance-setup")
	}
	types, mutations, rules, skipped := map[string]int{}, map[string]int{}, map[string]int{}, 0
	rapid.Check(t, func(rt *rapid.T) {
		s := drawStream(rt)
		got, anomalies, err := foldStream(s)
		if err != nil {
			rt.Fatal(err)
		}
		want, err := client.Reduce(conformance.Job{
			Start: conformance.Start{Messages: s.start, State: s.state}, Events: cut(s.events), Upgrade: true, Schema: true, Skip: true,
		})
		if err != nil {
			rt.Fatal(err)
		}
		if d := conformance.Diff(want[0].Conversation, got); d != "" {
			lines := make([]string, len(s.events))
			for i, e := range s.events {
				lines[i] = string(e)
			}
			rt.Fatalf("%s\nstart %s state %s\n%s\nskipped %v", d, s.start, s.state, strings.Join(lines, "\n"), want[0].Skipped)
		}
		for _, e := range s.events {
			var head struct{ Type string }
			if json.Unmarshal(e, &head) == nil {
				types[head.Type]++
			}
		}
		for _, m := range s.mutations {
			mutations[m]++
		}
		for rule, n := range anomalies {
			rules[rule] += int(n)
		}
		skipped += len(want[0].Skipped)
	})
	t.Logf("events by type: %v", types)
	t.Logf("mutations: %v", mutations)
	t.Logf("rules counted: %v", rules)
	t.Logf("malformed events: %d", skipped)
}
