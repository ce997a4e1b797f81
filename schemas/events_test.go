package schemas_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/schemas"
)

func TestSchemas_TakeWhatFrameworksSend(t *testing.T) {
	event, input := compile(t, "event.v1.schema.json"), compile(t, "input.v1.schema.json")
	events := 0
	for _, thread := range recordings.All() {
		for _, run := range thread.Runs {
			if err := input.Validate(parse(t, run.Input)); err != nil {
				t.Errorf("%s: %v", run.File, err)
			}
			for _, line := range run.Lines() {
				events++
				if err := event.Validate(parse(t, line)); err != nil {
					t.Errorf("%s: %s: %v", run.File, line, err)
				}
			}
		}
	}
	if events < 1000 {
		t.Errorf("%d events were looked at", events)
	}
}

// What frameworks call agents with can be put as the API's description says, and what Skein refuses the description refuses.
func TestOpenAPI_InputIsWhatFrameworksSend(t *testing.T) {
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", parse(t, schemas.OpenAPI)); err != nil {
		t.Fatal(err)
	}
	// The body of PUT on the path of an input.
	input, err := c.Compile("openapi.json#/paths/~1v1~1threads~1{thread}~1runs~1{run}~1input/put/requestBody/content/application~1json/schema")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range recordings.All() {
		for _, run := range thread.Runs {
			if err := input.Validate(parse(t, run.Input)); err != nil {
				t.Errorf("%s: %v", run.File, err)
			}
		}
	}
	for _, text := range []string{
		`{}`, `{"messages":{}}`, `{"messages":[],"threadId":1}`, `{"messages":[],"tools":{}}`, `{"messages":[],"resume":[{}]}`, `[]`,
	} {
		if _, err := agui.DecodeInput([]byte(text), ""); err == nil || input.Validate(parse(t, []byte(text))) == nil {
			t.Errorf("%s: Skein says %v, and the description takes it", text, err)
		}
	}
}

func TestSchemas_TakeTheirOwnExamples(t *testing.T) {
	for _, name := range []string{"event.v1.schema.json", "input.v1.schema.json", "headers.v1.schema.json"} {
		var schema struct{ Examples []json.RawMessage }
		if err := json.Unmarshal(files[name], &schema); err != nil {
			t.Fatal(err)
		}
		if len(schema.Examples) == 0 {
			t.Errorf("%s has no example", name)
		}
		for _, example := range schema.Examples {
			if err := compile(t, name).Validate(parse(t, example)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// The envelope is what ingest demands, no more and no less.
func TestEventSchema_IsThatOfIngest(t *testing.T) {
	s := compile(t, "event.v1.schema.json")
	for text, want := range map[string]bool{
		`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`: true,
		`{"type":"NEW","a":[{"b":null}],"c":1e400}`:         true,
		`{"a":1,"type":"\u0000"}`:                           true,
		`{}`:                                                false,
		`{"type":""}`:                                       false,
		`{"type":null}`:                                     false,
		`{"type":1}`:                                        false,
		`["RUN_STARTED"]`:                                   false,
		`"RUN_STARTED"`:                                     false,
	} {
		_, err := agui.Envelope([]byte(text))
		if valid := s.Validate(parse(t, []byte(text))) == nil; valid != want || (err == nil) != want {
			t.Errorf("%s: valid %t, ingest says %v; want %t", text, valid, err, want)
		}
	}
}

// What the schema takes, Skein takes; the older forms that Skein takes as well are not what one is to write.
func TestInputSchema_IsStricterThanSkein(t *testing.T) {
	s := compile(t, "input.v1.schema.json")
	for text, want := range map[string]struct{ schema, skein bool }{
		`{"threadId":"t","runId":"r","messages":[]}`:                                                 {true, true},
		`{"threadId":"t","runId":"r","messages":[{"id":"m","role":"user","content":"x"}],"new":[1]}`: {true, true},
		`{"threadId":"t","runId":"r","messages":[],"state":null,"parentRunId":"p","resume":[]}`:      {true, true},
		`{"messages":[]}`: {false, true},
		`{"threadId":"t","runId":"r","messages":["x"]}`:                                               {false, true},
		`{"threadId":"t","runId":"r","messages":[{"role":"user","content":"x"}]}`:                     {false, true},
		`{"threadId":"t","runId":"r","messages":[],"resume":{"interruptId":"i","status":"resolved"}}`: {false, true},
		`{"threadId":"t","runId":"r"}`:                                                                {false, false},
		`{"threadId":1,"runId":"r","messages":[]}`:                                                    {false, false},
		`{"threadId":"t","runId":"r","messages":{}}`:                                                  {false, false},
		`{"threadId":"t","runId":"r","messages":[],"tools":{}}`:                                       {false, false},
		`{"threadId":"t","runId":"r","messages":[],"resume":[{"interruptId":"i"}]}`:                   {false, false},
		`[]`: {false, false},
	} {
		_, err := agui.DecodeInput([]byte(text), "r")
		if valid := s.Validate(parse(t, []byte(text))) == nil; valid != want.schema || (err == nil) != want.skein {
			t.Errorf("%s: valid %t, Skein says %v; want %+v", text, valid, err, want)
		}
	}
}

// Headers that the schema refuses are refused by Skein, and the other way round, but for values that are of Skein's own topics or
// that no text can be.
func TestHeadersSchema_IsSkeins(t *testing.T) {
	s := compile(t, "headers.v1.schema.json")
	if len(schemas.HeadersV1) == 0 {
		t.Fatal("there is no schema")
	}
	for _, c := range []struct {
		headers map[string]string
		want    bool
	}{
		{nil, true},
		{map[string]string{"skein-version": "1", "skein-kind": "event", "run-id": "r/1 🧶", "seq": "0", "traceparent": "00"}, true},
		{map[string]string{"skein-kind": "input", "run-id": strings.Repeat("r", 512)}, true},
		{map[string]string{"agent": "shop 🧶", "label-user": "7", "label-" + strings.Repeat("k", 256): strings.Repeat("v", 256),
			"skein-synthetic": "true"}, true},
		{map[string]string{"skein-kind": "erase"}, true},
		{map[string]string{"skein-kind": "cancel", "run-id": "r"}, true},
		{map[string]string{"skein-kind": "claim", "run-id": "r"}, true},
		{map[string]string{"skein-kind": "refold"}, false},
		{map[string]string{"seq": "9223372036854775807"}, true},
		{map[string]string{"skein-version": "2"}, false},
		{map[string]string{"skein-version": "one"}, false},
		{map[string]string{"skein-version": ""}, false},
		{map[string]string{"skein-kind": "Event"}, false},
		{map[string]string{"skein-kind": ""}, false},
		{map[string]string{"run-id": ""}, false},
		{map[string]string{"run-id": "."}, false},
		{map[string]string{"run-id": ".."}, false},
		{map[string]string{"run-id": strings.Repeat("r", 513)}, false},
		{map[string]string{"seq": "-1"}, false},
		{map[string]string{"seq": "+1"}, false},
		{map[string]string{"seq": "1.0"}, false},
		{map[string]string{"seq": ""}, false},
		{map[string]string{"seq": "\x00\x00\x00\x00\x00\x00\x00\x01"}, false},
		{map[string]string{"seq": "10000000000000000000"}, false},
	} {
		var hs []record.Header
		members := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(c.headers)) {
			hs = append(hs, record.Header{Key: name, Value: []byte(c.headers[name])})
			members[name] = c.headers[name]
		}
		_, err := record.ParseHeaders(hs)
		if valid := s.Validate(members) == nil; valid != c.want || (err == nil) != c.want {
			t.Errorf("%q: valid %t, Skein says %v; want %t", c.headers, valid, err, c.want)
		}
	}
}
