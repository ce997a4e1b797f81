package conformance_test

import (
	"testing"

	"github.com/skeinhq/skein/test/conformance"
)

// What Diff cannot tell apart, or takes for equal, byte for byte: numbers that are no doubles and
// halves of surrogate pairs. want is what Skein keeps, client what the client makes of the same.
func TestFold_KeepsWhatTheClientRounds(t *testing.T) {
	live, ok := conformance.Live(t)
	for name, tt := range map[string]struct {
		events       []string
		want, client string
	}{
		"an integer beyond 2^53": {[]string{`{"type":"STATE_SNAPSHOT","snapshot":{"n":12345678901234567890}}`},
			`{"n":12345678901234567890}`, `{"n":12345678901234567000}`},
		"more digits than a double has": {[]string{`{"type":"STATE_SNAPSHOT","snapshot":[0.10000000000000000555,-0,1.0]}`},
			`[0.10000000000000000555,-0,1.0]`, `[0.1,0,1]`},
		"a patch takes them along": {[]string{`{"type":"STATE_SNAPSHOT","snapshot":{"a":9007199254740993}}`,
			`{"type":"STATE_DELTA","delta":[{"op":"copy","from":"/a","path":"/b"}]}`},
			`{"a":9007199254740993,"b":9007199254740993}`, `{"a":9007199254740992,"b":9007199254740992}`},
		"a test compares as the client does": {[]string{`{"type":"STATE_SNAPSHOT","snapshot":{"a":9007199254740993}}`,
			`{"type":"STATE_DELTA","delta":[{"op":"test","path":"/a","value":9007199254740992},{"op":"add","path":"/b","value":1}]}`},
			`{"a":9007199254740993,"b":1}`, `{"a":9007199254740992,"b":1}`},
		"half a pair, as value and as name": {[]string{`{"type":"STATE_SNAPSHOT","snapshot":{"\ud83d":"\uDE00"}}`},
			`{"\ud83d":"\uDE00"}`, `{"\ud83d":"\ude00"}`},
		"half a pair in a path": {[]string{`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/\ud83d","value":1}]}`}, `{"\ud83d":1}`, `{"\ud83d":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			events := conformance.Raw(tt.events)
			if got := string(foldOf(t, conformance.Start{}, events).State); got != tt.want {
				t.Errorf("Skein keeps %s, want %s", got, tt.want)
			}
			if !ok {
				return
			}
			if got := string(live.Play(t, conformance.Job{Events: events, Schema: true})[0].State); got != tt.client {
				t.Errorf("the client makes %s, want %s", got, tt.client)
			}
		})
	}
}

// Members stay in the order in which they came. The whole client writes those that its schema describes in the schema's order.
func TestFold_KeepsTheOrderOfMembers(t *testing.T) {
	const (
		parts  = `[{"text":"x","metadata":{"b":1,"a":2},"type":"text"},{"source":{"value":"v","type":"url"},"type":"image"}]`
		inside = `{"content":` + parts + `,"metadata":{"b":1,"a":2},"role":"user","id":"u"}`
		called = `{"toolCalls":[{"function":{"arguments":"{}","name":"n"},"type":"function","id":"c"}],"role":"assistant","id":"a"}`

		written = `[{"type":"text","text":"x","metadata":{"b":1,"a":2}},{"type":"image","source":{"type":"url","value":"v"}}]`
	)
	events := conformance.Raw([]string{`{"type":"MESSAGES_SNAPSHOT","messages":[` + inside + `,` + called + `]}`,
		`{"type":"TOOL_CALL_RESULT","messageId":"t","toolCallId":"c","content":` + parts + `}`})
	want := `[` + inside + `,` + called + `,{"id":"t","toolCallId":"c","role":"tool","content":` + parts + `}]`
	if got := string(foldOf(t, conformance.Start{}, events).Messages); got != want {
		t.Errorf("Skein keeps\n%s, want\n%s", got, want)
	}
	live, ok := conformance.Live(t)
	if !ok {
		return
	}
	client := `[{"id":"u","role":"user","metadata":{"b":1,"a":2},"content":` + written + `},` +
		`{"id":"a","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":"{}"}}]},` +
		`{"id":"t","toolCallId":"c","role":"tool","content":` + written + `}]`
	if got := string(live.Play(t, conformance.Job{Strip: true, Events: events})[0].Messages); got != client {
		t.Errorf("the client writes\n%s, want\n%s", got, client)
	}
}

// A character that a model's tokens cut in two is one again, wherever it was cut and whatever came in
// between; what stays a half stays that half.
func TestFold_JoinsHalvesOfACharacterOverDeltas(t *testing.T) {
	live, ok := conformance.Live(t)
	text := func(id, delta string) string {
		return `{"type":"TEXT_MESSAGE_CONTENT","messageId":"` + id + `","delta":"` + delta + `"}`
	}
	for name, tt := range map[string]struct {
		events []string
		want   string
	}{
		"in two deltas":             {[]string{text("m", `a\ud83d`), text("m", `\ude00b`)}, `"a😀b"`},
		"with another message's":    {[]string{text("m", `\ud83d`), `{"type":"TEXT_MESSAGE_START","messageId":"n"}`, text("n", `\ude00`), text("m", `\ude00`)}, `"😀"`},
		"with an empty one between": {[]string{text("m", `\ud83d`), text("m", ``), text("m", `\ude00`)}, `"😀"`},
		"in the wrong order":        {[]string{text("m", `\ude00`), text("m", `\ud83d`)}, `"\ude00\ud83d"`},
		"the second never comes":    {[]string{text("m", `\ud83d`), text("m", `b`)}, `"\ud83db"`},
	} {
		t.Run(name, func(t *testing.T) {
			events := conformance.Raw(append([]string{`{"type":"TEXT_MESSAGE_START","messageId":"m"}`}, tt.events...))
			f := foldOf(t, conformance.Start{}, events)
			if got := string(f.run.Messages()[0].Get("content")); got != tt.want {
				t.Errorf("content %s, want %s", got, tt.want)
			}
			if !ok {
				return
			}
			if d := conformance.Diff(live.Play(t, conformance.Job{Events: events, Schema: true})[0].Conversation, f.Conversation); d != "" {
				t.Error(d)
			}
		})
	}
}
