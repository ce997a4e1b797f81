package record_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/schemas"
)

// sealed is a record with every member in it but those of an open run.
func sealed() *record.Run {
	at := time.Date(2026, 9, 17, 12, 0, 0, 123_000_000, time.UTC)
	end := at.Add(3 * time.Second)
	first, took := int64(210), int64(3000)
	message := func(id, role, raw string) agui.Message {
		return agui.Message{ID: id, Role: role, Raw: json.RawMessage(raw)}
	}
	return &record.Run{
		Tenant: "acme", ThreadID: "thread/1", RunID: "run~2", ClientRunID: "run",
		Lineage: record.Lineage{ParentRunID: "run", ParentBy: record.ParentContent, SpawnedBy: "elsewhere", Spawned: true, BranchID: "run~2",
			RootRunID: "run", Depth: 1},
		Status: record.StatusInterrupted,
		Agent:  "shop <1>", Labels: map[string]string{"user": "7", "env": "", "Env": "x"},
		Started:       json.RawMessage(`{"type":"RUN_STARTED","threadId":"thread/1","runId":"run","z":1,"a":12345678901234567890}`),
		Input:         json.RawMessage(`{"threadId":"thread/1","state":{"n":1.10}}`),
		InputLayout:   agui.Layout{{From: 0, To: 1}, {Own: true, From: 0, To: 1}},
		InputMessages: []agui.Message{message("u2", "user", `{"id":"u2","role":"user","content":"<b>&amp;\u2028"}`)},
		Base:          "run",
		Messages:      []agui.Message{message("u2", "user", `{"id":"u2","role":"user","content":"<b>&amp;\u2028"}`), message("a2", "assistant", `{"role":"assistant","id":"a2","content":"\ud83e"}`)},
		Layout:        agui.Layout{{From: 0, To: 1}, {Own: true, From: 0, To: 2}},
		MessageCount:  3, HistoryKey: "k", State: json.RawMessage(`{"n":1e2}`), SinceSnapshot: 100,
		Events:     []json.RawMessage{json.RawMessage(`{"type":"CUSTOM","name":"x","value":null}`)},
		Terminal:   json.RawMessage(`{"type":"RUN_FINISHED","threadId":"thread/1","runId":"run"}`),
		Interrupts: []json.RawMessage{json.RawMessage(`{"id":"i","reason":"ask"}`)}, PendingToolCalls: []string{"call-1"},
		Resumes: []json.RawMessage{json.RawMessage(`{"interruptId":"h","status":"resolved"}`)}, Synthetic: true,
		Stats: record.Stats{
			Events: map[string]int64{"RUN_STARTED": 1, "CUSTOM": 1}, EventBytes: map[string]int64{"RUN_STARTED": 80, "CUSTOM": 40},
			Messages: 2, ToolCalls: map[string]int64{"search": 1}, Anomalies: map[string]int64{"late-input": 1},
			Usage: []record.TokenUsage{{Provider: "p", Model: "m", InputTokens: new(int64(1)), OutputTokens: new(int64(0)),
				ReasoningTokens: new(int64(0)), CachedInputTokens: new(int64(1)), CacheWriteInputTokens: new(int64(1))}},
			TimeToFirstToken: &first, Duration: &took, ToolCallTimes: map[string][]int64{"call-0": {300, 900}, "call-1": {1200}},
		},
		StartedAt: at, EndedAt: &end,
		Raw: record.Raw{Partition: 3, First: 10, Next: 20, Ranges: [][2]int64{{10, 12}, {15, 20}}, Events: 7,
			SHA256: strings.Repeat("0a", 32), NextSeq: 7},
		InputSHA256: strings.Repeat("f0", 32), FoldVersion: 1, Truncated: true, RawLost: true,
	}
}

// open is a record of a run that goes on, with as little in it as there can be.
func open() *record.Run {
	return &record.Run{
		Tenant: "acme", ThreadID: "t", RunID: "r", Lineage: record.Lineage{ParentBy: record.ParentNone, BranchID: "r", RootRunID: "r"},
		Status: record.StatusRunning, StartedAt: time.Unix(0, 0).UTC(), FoldVersion: 1,
		Raw:   record.Raw{Ranges: [][2]int64{{0, 1}}, SHA256: strings.Repeat("0", 64), NextSeq: -1},
		Stats: record.Stats{Events: map[string]int64{}, EventBytes: map[string]int64{}},
		Open:  &record.Open{Fold: json.RawMessage(`{"v":1}`), Hash: []byte{1, 2, 3}, LastAt: time.Unix(5, 0).UTC(), Pending: true, Placed: true},
	}
}

// What stands for an id or a name may be half a surrogate pair: each is another one.
func TestEncodeRun_KeepsHalvesOfSurrogatePairs(t *testing.T) {
	const half, other = "\xed\xa0\x80", "\xed\xa0\x81"
	r := open()
	r.SpawnedBy, r.PendingToolCalls = half, []string{half, other}
	counts := map[string]int64{half: 1, other: 2, "<&>\u2028": 3}
	r.Stats = record.Stats{Events: counts, EventBytes: counts, ToolCalls: counts,
		Usage:         []record.TokenUsage{{Provider: half, Model: other}, {Model: half, InputTokens: new(int64(0))}},
		ToolCallTimes: map[string][]int64{half: {1}, other: {1, 2}}}
	b, err := record.EncodeRun(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"spawnedBy":"\ud800"`, `"pendingToolCalls":["\ud800","\ud801"]`, `"events":{"<&>\u2028":3,"\ud800":1,"\ud801":2}`,
		`"usage":[{"provider":"\ud800","model":"\ud801"},{"model":"\ud800","inputTokens":0}]`, `"toolCallTimesMs":{"\ud800":[1],"\ud801":[1,2]}`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s\nhas not %s", b, want)
		}
	}
	back, err := record.DecodeRun(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, r) {
		t.Errorf("read back as\n%+v\nwant\n%+v", back, r)
	}
}

func TestEncodeRun_RoundTrip(t *testing.T) {
	for name, r := range map[string]*record.Run{"sealed": sealed(), "open": open()} {
		t.Run(name, func(t *testing.T) {
			b, err := record.EncodeRun(r)
			if err != nil {
				t.Fatal(err)
			}
			back, err := record.DecodeRun(b)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(back, r) {
				t.Errorf("record is\n%+v\nwant\n%+v", back, r)
			}
			again, err := record.EncodeRun(back)
			if err != nil || !bytes.Equal(again, b) {
				t.Errorf("encoded again it is\n%s, %v\nwant\n%s", again, err, b)
			}
		})
	}
}

// fill puts JSON into every member that carries some.
func fill(v reflect.Value, text json.RawMessage) {
	switch to := v.Addr().Interface().(type) {
	case *json.RawMessage:
		*to = text
	case *[]json.RawMessage:
		*to = []json.RawMessage{text, nil, text}
	case *[]agui.Message:
		*to = []agui.Message{{Raw: text}, {Raw: json.RawMessage(`{}`)}}
	default:
		if of := v.Type(); of.Kind() == reflect.Pointer && of.Elem().PkgPath() == reflect.TypeFor[record.Run]().PkgPath() {
			v.Set(reflect.New(of.Elem()))
			v = v.Elem()
		}
		if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]() && v.Type() != reflect.TypeFor[agui.Families]() {
			for i := range v.NumField() {
				fill(v.Field(i), text)
			}
		}
	}
}

// The JSON that a record carries does not pass through encoding/json, yet is written as that would write it.
func TestEncodeRun_IsAsEncodingJSONHasIt(t *testing.T) {
	full := sealed()
	fill(reflect.ValueOf(full).Elem(), json.RawMessage(`{ "-0": -0, "s":"-0 \" -0",
		"l":[ -0, null, 1e400, "<&>\u2028" ] }`))
	full.Agent = `-0 "-0`
	for name, r := range map[string]*record.Run{"full": full, "sealed": sealed(), "open": open()} {
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(r); err != nil {
			t.Fatal(err)
		}
		before := fmt.Sprintf("%+v", r)
		got, err := record.EncodeRun(r)
		if err != nil || string(got)+"\n" != want.String() {
			t.Errorf("%s: record is\n%s, %v\nwant\n%s", name, got, err, &want)
		}
		if after := fmt.Sprintf("%+v", r); after != before {
			t.Errorf("%s: it changed the record to\n%s", name, after)
		}
	}
}

func TestEncodeRun_IsTheSameInEveryPlaceAndTimeZone(t *testing.T) {
	want, err := record.EncodeRun(sealed())
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // maps are iterated in another order each time
		r := sealed()
		r.StartedAt = r.StartedAt.In(time.FixedZone("east", 3600))
		got, err := record.EncodeRun(r)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("record is\n%s, %v\nwant\n%s", got, err, want)
		}
	}
}

func TestEncodeRun_ListsAndMapsAreNeverNull(t *testing.T) {
	r := open()
	r.Raw.Ranges, r.Stats = nil, record.Stats{}
	b, err := record.EncodeRun(r)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"ranges":[]`) || !strings.Contains(string(b), `"events":{},"eventBytes":{}`) {
		t.Errorf("record is %s", b)
	}
	if r.Raw.Ranges != nil || r.Stats.Events != nil {
		t.Error("the record given was changed")
	}
}

func TestEncodeRun_TakesTimesThatRFC3339CannotSay(t *testing.T) {
	r := sealed()
	r.StartedAt = time.UnixMilli(1<<53 - 1)
	before := time.UnixMilli(-(1<<53 - 1))
	r.EndedAt = &before
	b, err := record.EncodeRun(r)
	if err != nil {
		t.Fatal(err)
	}
	back, err := record.DecodeRun(b)
	if err != nil {
		t.Fatal(err)
	}
	if got := back.StartedAt.Year(); got != 9999 {
		t.Errorf("start is in %d, want 9999", got)
	}
	if got := back.EndedAt.Year(); got != 1 {
		t.Errorf("end is in %d, want 1", got)
	}
}

func TestDecodeRun_RefusesWhatIsNoRecord(t *testing.T) {
	valid, err := record.EncodeRun(open())
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]string{
		"nothing":              "",
		"not JSON":             "{",
		"more than one":        string(valid) + "{}",
		"an array":             "[]",
		"no ids":               "{}",
		"an unknown status":    strings.Replace(string(valid), `"running"`, `"paused"`, 1),
		"an unknown parent":    strings.Replace(string(valid), `"none"`, `"guess"`, 1),
		"a wrong type":         strings.Replace(string(valid), `"depth":0`, `"depth":"0"`, 1),
		"a message without id": strings.Replace(string(valid), `"messageCount":0`, `"messageCount":0,"messages":[{"role":"user"}]`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := record.DecodeRun([]byte(in)); err == nil {
				t.Errorf("taken for %+v", r)
			}
		})
	}
}

func TestDecodeRun_PassesOverUnknownMembers(t *testing.T) {
	valid, err := record.EncodeRun(open())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := record.DecodeRun([]byte(`{"later":[1],` + string(valid[1:]))); err != nil {
		t.Error(err)
	}
}

func TestRunRecordSchema_AcceptsWhatIsWritten(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemas.RunRecordV1))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("run-record.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("run-record.json")
	if err != nil {
		t.Fatal(err)
	}
	bare := open()
	bare.Raw.Ranges, bare.Stats, bare.Open = nil, record.Stats{}, nil
	for name, r := range map[string]*record.Run{"sealed": sealed(), "open": open(), "bare": bare} {
		t.Run(name, func(t *testing.T) {
			b, err := record.EncodeRun(r)
			if err != nil {
				t.Fatal(err)
			}
			v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(v); err != nil {
				t.Errorf("%v\n%s", err, b)
			}
		})
	}
	for name, in := range map[string]string{"an empty object": `{}`, "an array": `[]`} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(in))
		if err != nil {
			t.Fatal(err)
		}
		if schema.Validate(v) == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// A member that is added to the record without a word in the schema fails here.
func TestRunRecordSchema_DescribesEveryMember(t *testing.T) {
	var doc struct {
		Properties map[string]json.RawMessage            `json:"properties"`
		Defs       map[string]map[string]json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(schemas.RunRecordV1, &doc); err != nil {
		t.Fatal(err)
	}
	properties := func(raw json.RawMessage) map[string]json.RawMessage {
		var o struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		return o.Properties
	}
	check := func(v any, described map[string]json.RawMessage) {
		typ := reflect.TypeOf(v)
		for _, field := range reflect.VisibleFields(typ) {
			if field.Anonymous { // its fields are members of their own
				continue
			}
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if _, ok := described[name]; !ok {
				t.Errorf("%s.%s (%q) is not in the schema", typ, field.Name, name)
			}
			delete(described, name)
		}
		for name := range described {
			t.Errorf("the schema describes %q, which %s does not have", name, typ)
		}
	}
	raw, stats, opened := properties(doc.Properties["raw"]), properties(doc.Properties["stats"]), properties(doc.Properties["open"])
	var usage map[string]json.RawMessage
	if err := json.Unmarshal(doc.Defs["tokenUsage"]["properties"], &usage); err != nil {
		t.Fatal(err)
	}
	check(record.Run{}, doc.Properties)
	check(record.Raw{}, raw)
	check(record.Stats{}, stats)
	check(record.Open{}, opened)
	check(record.TokenUsage{}, usage)
}

// Invariants: no panic; what is decoded can be encoded, and decoding that gives the same bytes.
func FuzzDecodeRun(f *testing.F) {
	for _, r := range []*record.Run{sealed(), open()} {
		b, err := record.EncodeRun(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := record.DecodeRun(b)
		if err != nil {
			return
		}
		first, err := record.EncodeRun(r)
		if err != nil {
			t.Fatalf("encoding what was decoded: %v", err)
		}
		back, err := record.DecodeRun(first)
		if err != nil {
			t.Fatalf("decoding %s: %v", first, err)
		}
		second, err := record.EncodeRun(back)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("encoded twice:\n%s\n%s\n%v", first, second, err)
		}
	})
}
