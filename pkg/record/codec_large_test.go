package record

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
)

func withContents() *Run {
	const text = "é ☕ <&> "
	m := func(id, role string) agui.Message {
		raw, err := json.Marshal(map[string]any{"id": id, "role": role, "content": text, "more": []any{1.50, nil, map[string]any{"x": text}}})
		if err != nil {
			panic(err) // texts and numbers only
		}
		return agui.Message{ID: id, Role: role, Raw: raw}
	}
	return &Run{
		Tenant: "t", ThreadID: "t", RunID: "r", Status: StatusRunning, Lineage: Lineage{ParentBy: ParentNone}, StartedAt: time.Unix(1, 0).UTC(),
		Messages: []agui.Message{m("a", "assistant"), m("b", "user")}, InputMessages: []agui.Message{m("c", "user")},
		State: json.RawMessage(`{"open":{"fold":1},"messages":[]}`), Events: []json.RawMessage{json.RawMessage(`{"type":"CUSTOM"}`)},
		Open: &Open{Fold: json.RawMessage(`{"messages":[1],"text":"` + text + `"}`), Hash: []byte("hash"), LastAt: time.Unix(2, 0).UTC(), Pending: true},
	}
}

// Decoding a record piece by piece gives what encoding/json gives, or nothing.
func TestDecodeRun_GivesWhatEncodingJSONGives(t *testing.T) {
	whole, err := EncodeRun(withContents())
	if err != nil {
		t.Fatal(err)
	}
	text := string(whole)
	for name, in := range map[string]string{
		"as it is written": text,
		"white space":      strings.ReplaceAll(text, `,"messages":[`, " ,\n\"messages\" : [ "),
		"no checkpoint":    text[:strings.Index(text, `,"open":{"fold":{"messages"`)] + "}",
		"a null":           strings.Replace(text, `"open":{"fold":{"messages"`, `"open":null,"later":{"fold":{"messages"`, 1),
		"empty lists":      `{"tenant":"t","messages":[],"inputMessages":[],"open":{}}`,
		"no list":          `{"tenant":"t","messages":{}}`,
		"no message":       `{"tenant":"t","messages":[1]}`,
		"not UTF-8":        "{\"tenant\":\"t\xff\"}",
		"cut":              text[:len(text)-10],
		"no object":        `[1]`,
		"nothing":          ``,
	} {
		var want, got Run
		bad := json.Unmarshal([]byte(in), &want)
		switch done := got.decode([]byte(in)) == nil; {
		case done && bad != nil && name != "no object": // it has no ids, and is refused for that
			t.Errorf("%s: it is decoded, and encoding/json says %v", name, bad)
		case done && bad == nil && !reflect.DeepEqual(got, want):
			t.Errorf("%s:\n%+v\nwant\n%+v", name, got, want)
		case !done && (name == "as it is written" || name == "white space" || name == "no checkpoint" || name == "empty lists"):
			t.Errorf("%s: it is not decoded", name)
		}
	}
}
