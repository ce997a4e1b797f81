package schemas_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/schemas"
	"github.com/skeinhq/skein/test/constants"
)

const (
	recordPackage = "../pkg/record"
	metaSchema    = "http://asyncapi.com/definitions/3.0.0/asyncapi.json"
	base          = "https://github.com/skeinhq/skein/schemas/"
)

// files are the schemas that the description refers to.
var files = map[string][]byte{
	"event.v1.schema.json":      schemas.EventV1,
	"input.v1.schema.json":      schemas.InputV1,
	"headers.v1.schema.json":    schemas.HeadersV1,
	"run-record.v1.schema.json": schemas.RunRecordV1,
	"asyncapi.json":             schemas.AsyncAPI,
}

// asyncAPI is the part of the description that the tests look at.
type asyncAPI struct {
	Channels map[string]struct {
		Address  string
		Messages map[string]struct {
			Ref string `json:"$ref"`
		}
		Bindings struct {
			Kafka struct {
				TopicConfiguration map[string]any
			}
		}
	}
	Components struct {
		Messages map[string]struct {
			Headers struct {
				Ref        string `json:"$ref"`
				Properties map[string]struct{ Enum []string }
			}
			Examples []struct {
				Name             string
				Headers, Payload any
			}
		}
	}
}

func describe(t *testing.T) asyncAPI {
	t.Helper()
	var doc asyncAPI
	if err := json.Unmarshal(schemas.AsyncAPI, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

func parse(t *testing.T, text []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// compile compiles a schema, named by its file and the way into it.
func compile(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	for file, text := range files {
		if err := c.AddResource(base+file, parse(t, text)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile(base + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAsyncAPI_IsValid(t *testing.T) {
	meta, err := os.ReadFile(filepath.Join("testdata", "asyncapi-3.0.0.json"))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(metaSchema, parse(t, meta)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(metaSchema)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(parse(t, schemas.AsyncAPI)); err != nil {
		t.Error(err)
	}
	// The meta schema looks into all parts.
	for part, change := range map[string]func(doc map[string]any){
		"version": func(doc map[string]any) { doc["asyncapi"] = "2.6.0" },
		"channel": func(doc map[string]any) { doc["channels"].(map[string]any)["events"].(map[string]any)["topic"] = "x" },
		"operation": func(doc map[string]any) {
			delete(doc["operations"].(map[string]any)["takeEvents"].(map[string]any), "action")
		},
		"message": func(doc map[string]any) {
			doc["components"].(map[string]any)["messages"].(map[string]any)["event"].(map[string]any)["payload"] = "event"
		},
	} {
		doc := parse(t, schemas.AsyncAPI).(map[string]any)
		change(doc)
		if s.Validate(doc) == nil {
			t.Errorf("a %s that is wrong is valid", part)
		}
	}
}

func TestAsyncAPI_ExamplesAreWhatItDescribes(t *testing.T) {
	for name, m := range describe(t).Components.Messages {
		headers := compile(t, "asyncapi.json#/components/messages/"+name+"/headers")
		payload := compile(t, "asyncapi.json#/components/messages/"+name+"/payload")
		if len(m.Examples) == 0 {
			t.Errorf("%s has no example", name)
		}
		for _, example := range m.Examples {
			if err := headers.Validate(example.Headers); err != nil {
				t.Errorf("headers of %s, %s: %v", name, example.Name, err)
			}
			if err := payload.Validate(example.Payload); err != nil {
				t.Errorf("%s, %s: %v", name, example.Name, err)
			}
			if headers.Validate(map[string]any{"skein-version": "2", "skein-reason": 7}) == nil {
				t.Errorf("any headers will do for %s", name)
			}
		}
	}
}

// Each kind of record and each header is described, where it lies.
func TestAsyncAPI_HasEveryKindAndHeader(t *testing.T) {
	doc := describe(t)
	topics := kafka.Config{}.Topics()
	var addresses, described []string
	for _, channel := range doc.Channels {
		addresses = append(addresses, channel.Address)
		for name, m := range channel.Messages {
			if m.Ref != "#/components/messages/"+name {
				t.Errorf("message %s of %s is %s", name, channel.Address, m.Ref)
			}
			described = append(described, name)
		}
	}
	slices.Sort(addresses)
	if want := slices.Sorted(slices.Values(topics.All())); !slices.Equal(addresses, want) {
		t.Errorf("channels are %q, topics %q", addresses, want)
	}
	for _, kind := range constants.Values(t, recordPackage, "Kind") {
		if !slices.Contains(described, kind) {
			t.Errorf("no message is of kind %s", kind)
		}
	}
	var headers struct{ Properties, PatternProperties map[string]any }
	if err := json.Unmarshal(schemas.HeadersV1, &headers); err != nil {
		t.Fatal(err)
	}
	dead := doc.Components.Messages["deadLetter"].Headers.Properties
	for _, name := range constants.Values(t, recordPackage, "Header") {
		if _, ok := dead[name]; !ok && headers.Properties[name] == nil && headers.PatternProperties["^"+name] == nil {
			t.Errorf("header %s is not described", name)
		}
	}
	if got, want := dead["skein-reason"].Enum,
		deadletter.AllReasons(); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("reasons are %q, want %q", got, want)
	}
}

// The settings of the topics are those that they are made with.
func TestAsyncAPI_HasTheTopicsSettings(t *testing.T) {
	cfg := kafkatest.Start(t, 1)
	adm := kafkatest.Admin(t, cfg)
	for _, channel := range describe(t).Channels {
		found, err := adm.DescribeTopicConfigs(t.Context(), channel.Address)
		if err != nil {
			t.Fatal(err)
		}
		made := map[string]string{}
		for _, c := range found[0].Configs {
			made[c.Key] = c.MaybeValue()
		}
		if len(channel.Bindings.Kafka.TopicConfiguration) < 3 {
			t.Errorf("%s has few settings", channel.Address)
		}
		for name, value := range channel.Bindings.Kafka.TopicConfiguration {
			var text string
			switch v := value.(type) {
			case []any:
				text, _ = v[0].(string)
			default:
				b, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				text = string(b)
			}
			if made[name] != text {
				t.Errorf("%s of %s is described as %s, the topic has %q", name, channel.Address, text, made[name])
			}
		}
	}
}
