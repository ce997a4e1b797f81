package query

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/artifact"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/lineage/draw"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/timeline"
	"github.com/skeinhq/skein/schemas"
)

// openAPI is the part of a description that the tests look at.
type openAPI struct {
	OpenAPI string `json:"openapi"`
	Paths   map[string]map[string]struct {
		Parameters []struct {
			Ref  string `json:"$ref"`
			Name string `json:"name"`
			In   string `json:"in"`
			// Description is there where the parameter is the path's own.
			Description string `json:"description"`
		} `json:"parameters"`
	} `json:"paths"`
	Components struct {
		Parameters map[string]struct {
			Schema struct{ Enum []string } `json:"schema"`
		} `json:"parameters"`
		Schemas map[string]struct {
			Properties map[string]json.RawMessage `json:"properties"`
			Required   []string                   `json:"required"`
		} `json:"schemas"`
	} `json:"components"`
}

func readOpenAPI(t *testing.T) openAPI {
	t.Helper()
	var doc openAPI
	if err := json.Unmarshal(schemas.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestOpenAPI_IsServedWithoutCredentials(t *testing.T) {
	f := newFixture(t)
	r := f.get("", "/openapi.json")
	if r.status != 200 || r.header.Get("Content-Type") != "application/json" || r.body != string(schemas.OpenAPI) {
		t.Errorf("answer %d %v", r.status, r.header)
	}
	f.call(http.MethodPost, "", "/openapi.json").problem(t, http.StatusMethodNotAllowed)
}

func TestOpenAPI_HasEveryRouteAndParameter(t *testing.T) {
	doc := readOpenAPI(t)
	want := map[string][]string{}
	for _, r := range Routes() {
		if r.Method == http.MethodGet {
			want[r.Pattern] = slices.Sorted(slices.Values(r.Params))
		} else if _, ok := doc.Paths[r.Pattern][strings.ToLower(r.Method)]; !ok {
			t.Errorf("%s %s is not described", r.Method, r.Pattern)
		}
	}
	got := map[string][]string{}
	for path, methods := range doc.Paths {
		get, ok := methods["get"]
		if !ok {
			continue // another stage's
		}
		var params []string
		for _, p := range get.Parameters {
			if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
				if p.Name = name; name == "thread" || name == "run" {
					p.In = "path"
				}
			}
			if p.In == "" || p.In == "query" {
				params = append(params, p.Name)
			}
		}
		got[path] = slices.Sorted(slices.Values(params))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("described %v\nserved    %v", got, want)
	}
}

// The words that parameters take are those of the language.
func TestOpenAPI_HasTheWordsOfFiltersAndMeasures(t *testing.T) {
	doc := readOpenAPI(t)
	if words := doc.Components.Parameters[search.ParamRewrote].Schema.Enum; !slices.Equal(words, search.Rewrotes) {
		t.Errorf("rewrote takes %v, described %v", search.Rewrotes, words)
	}
	var measures []string
	for _, p := range doc.Paths["/v1/statistics"]["get"].Parameters {
		if p.Name == search.ParamMeasure {
			_, list, _ := strings.Cut(strings.TrimSuffix(strings.ReplaceAll(p.Description, " (milliseconds)", ""), "."), ": ")
			measures = strings.Split(list, ", ")
		}
	}
	if !slices.EqualFunc(measures, search.Measures, func(a string, b search.Measure) bool { return a == string(b) }) {
		t.Errorf("measures are %v, described %v", search.Measures, measures)
	}
}

// fieldsOf lists the JSON names of a struct, and of them those that are always there.
func fieldsOf(typ reflect.Type) (all, required []string) {
	for i := range typ.NumField() {
		field := typ.Field(i)
		tag := field.Tag.Get("json")
		if tag == "" && field.Anonymous {
			a, r := fieldsOf(field.Type)
			all, required = append(all, a...), append(required, r...)
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if name == "" || name == "-" {
			continue
		}
		all = append(all, name)
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	return slices.Sorted(slices.Values(all)), slices.Sorted(slices.Values(required))
}

func TestOpenAPI_HasEveryField(t *testing.T) {
	doc := readOpenAPI(t)
	for name, v := range map[string]any{
		"Threads": threadsAnswer{}, "Thread": store.Thread{}, "ThreadSummary": threadAnswer{},
		"Lineage": lineageAnswer{}, "LineageRun": client.LineageRun{}, "Branch": lineage.Branch{}, "Spawn": lineage.Spawn{},
		"Picture": draw.Picture{}, "Row": draw.Row{}, "Badge": draw.Badge{},
		"Run": runAnswer{}, "Stats": record.Stats{}, "TokenUsage": record.TokenUsage{}, "Raw": record.Raw{},
		"History": historyAnswer{}, "Diff": diffAnswer{}, "DiffSide": diffSide{}, "Change": lineage.Change{},
		"ReplayedEvent": replayLine{}, "Proof": proofAnswer{}, "ProofClaim": claim{}, "VerifyProgress": verifyProgress{},
		"ExportWithReport": exportAnswer{}, "ExportReport": artifact.Report{},
		"LateError": record.LateError{},
		"State":     stateAnswer{}, "FoundSteps": findAnswer{},
		"Step": stepAnswer{}, "HistoryChange": timeline.Change{}, "MessageChange": timeline.MessageChange{},
		"Changes": changesAnswer{}, "PlaceChange": placeChange{}, "UnreadRun": unreadRun{},
		"RunningRun": runningRun{}, "Fork": client.Fork{}, "Alternative": client.Alternative{},
		"Interrupts": interruptsAnswer{}, "WaitingRun": waitingRun{}, "WaitingInterrupt": waitingInterrupt{},
		"InterruptAnswer": interruptAnswer{},
		"FoundRuns":       runsAnswer{}, "FoundRun": search.Run{}, "Searched": searched{}, "Statistics": statisticsAnswer{},
		"StatisticsGroup": statisticsGroup{},
		"Erasure":         erasureAnswer{}, "DeadLetters": deadLettersAnswer{}, "DeadLetter": deadletter.Record{},
	} {
		s, ok := doc.Components.Schemas[name]
		if !ok {
			t.Errorf("%s is not described", name)
			continue
		}
		all, required := fieldsOf(reflect.TypeOf(v))
		if got := slices.Sorted(maps.Keys(s.Properties)); !slices.Equal(got, all) {
			t.Errorf("%s: described %v, written %v", name, got, all)
		}
		if got := slices.Sorted(slices.Values(s.Required)); !slices.Equal(got, required) {
			t.Errorf("%s: required %v, always written %v", name, got, required)
		}
	}
}

// compiler has the description; each schema is compiled once.
var compiler = sync.OnceValues(func() (*jsonschema.Compiler, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemas.OpenAPI))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	return c, c.AddResource("https://skein/openapi.json", doc)
})

var compiling sync.Mutex

// described checks a JSON document against a schema of the description: one with a name, or one to which a pointer leads.
func described(t testing.TB, name, body string) {
	t.Helper()
	c, err := compiler()
	if err != nil {
		t.Fatal(err)
	}
	compiling.Lock()
	defer compiling.Unlock()
	if !strings.HasPrefix(name, "/") {
		name = "/components/schemas/" + name
	}
	schema, err := c.Compile("https://skein/openapi.json#" + name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		t.Errorf("%.2000s is not as described: %v", body, err)
	}
}

// The description's artifact is the frozen contract, with what its $defs say put where they are meant:
// a reference into them would lead into the description.
func TestOpenAPI_HasTheExportContractAsItIs(t *testing.T) {
	var doc struct {
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(schemas.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	var contract map[string]any
	if err := json.Unmarshal(schemas.ExportV1, &contract); err != nil {
		t.Fatal(err)
	}
	defs, ok := contract["$defs"].(map[string]any)
	if !ok {
		t.Fatal("the contract has no $defs any more")
	}
	var put func(v any) any
	put = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				return put(defs[strings.TrimPrefix(ref, "#/$defs/")])
			}
			for name, member := range v {
				v[name] = put(member)
			}
		case []any:
			for i, element := range v {
				v[i] = put(element)
			}
		}
		return v
	}
	delete(contract, "$schema")
	delete(contract, "$defs")
	if got, want := doc.Components.Schemas["ExportArtifact"], put(contract); !reflect.DeepEqual(got, want) {
		t.Errorf("the description has\n%v\nthe contract is\n%v", got, want)
	}
}

// What stands for an id or a name may be half a surrogate pair: answers say which.
func TestAnswers_KeepHalvesOfSurrogatePairs(t *testing.T) {
	const half, other = "\xed\xa0\x80", "\xed\xa0\x81"
	f := newFixture(t)
	r := run("chat", "r", 1, agui.Message{ID: half, Role: "user", Raw: json.RawMessage(`{"id":"\ud800","role":"user","content":"x"}`)})
	r.SpawnedBy, r.PendingToolCalls, r.Stats.ToolCalls = half, []string{half, other}, map[string]int64{half: 1, other: 2}
	f.put(r)
	f.put(run("chat", "s", 2, agui.Message{ID: half, Role: "user", Raw: json.RawMessage(`{"id":"\ud800","role":"user","content":"y"}`)}))
	for path, wants := range map[string][]string{
		"/v1/threads/chat/runs/r":                   {`"spawnedBy":"\ud800"`, `"pendingToolCalls":["\ud800","\ud801"]`, `"toolCalls":{"\ud800":1,"\ud801":2}`},
		"/v1/threads/chat/lineage":                  {`"spawnedBy":"\ud800"`, `{"runId":"r","spawnedBy":"\ud800"}`, `{"name":"spawned by","runId":"\ud800"}`},
		"/v1/threads/chat/diff?from=r&to=s":         {`"changed":[{"id":"\ud800",`},
		"/v1/threads/chat/runs/r/checkout?at=start": {`"parentRunId":"\ud800"`},
	} {
		body := f.get("acme", path).body
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %s\nhas not %s", path, body, want)
			}
		}
	}
}

// Answers are held to the schemas as they come over the wire.
func TestOpenAPI_FitsAnswers(t *testing.T) {
	f := newFixture(t)
	conversation(f)
	late := run("chat", "late", 5)
	late.SpawnedBy = "later"
	ttft := int64(3)
	late.Stats.TimeToFirstToken = &ttft
	late.Stats.Usage = []record.TokenUsage{{Provider: "p", Model: "m", InputTokens: new(int64(1)), OutputTokens: new(int64(0))}}
	late.Interrupts = []json.RawMessage{json.RawMessage(`{"id":"i"}`)}
	f.put(late)
	f.put(run("chat", "later", 6))
	f.put(opened(run("chat", "open", 7, msg("m", "user", "x"))))
	for path, name := range map[string]string{
		"/v1/threads":    "Threads",
		"/v1/interrupts": "Interrupts",
		"/v1/runs":       "FoundRuns",
		"/v1/runs?limit=1&since=365d&sort=tokens": "FoundRuns",
		"/v1/statistics": "Statistics",
		"/v1/statistics?by=model,day,label:user&measure=runs,durationP50": "Statistics",
		"/v1/runs?status=gone":                          "Problem",
		"/v1/threads/chat":                              "ThreadSummary",
		"/v1/threads/chat?atLeast=3:999":                "ThreadSummary",
		"/v1/threads/chat/lineage":                      "Lineage",
		"/v1/threads/chat/history":                      "History",
		"/v1/threads/chat/runs/leaf":                    "Run",
		"/v1/threads/chat/runs/late":                    "Run",
		"/v1/threads/chat/runs/open":                    "Run",
		"/v1/threads/chat/runs/open/history":            "History",
		"/v1/threads/chat/diff":                         "Diff",
		"/v1/threads/chat/diff?to=leaf":                 "Diff",
		"/v1/threads/chat/diff?to=root":                 "Diff",
		"/v1/threads/chat/checkout":                     "RunAgentInput",
		"/v1/threads/chat/runs/late/checkout":           "RunAgentInput",
		"/v1/threads/chat/runs/root/checkout?at=start":  "RunAgentInput",
		"/v1/threads/chat/runs/root/export":             "ExportArtifact",
		"/v1/threads/chat/runs/root/export?report=true": "ExportWithReport",
		"/v1/threads/nobody":                            "Problem",
		"/v1/threads/..":                                "Problem",
	} {
		described(t, name, f.get("acme", path).body)
	}
}

// Where the index is behind, each call answers with what there is, in the form that is described for that.
func TestOpenAPI_FitsAnswersThatComeTooEarly(t *testing.T) {
	f := newRawFixture(t)
	conversation(f.fixture)
	for _, rt := range readRoutes() {
		if !slices.Contains(rt.Params, "atLeast") {
			continue
		}
		path := strings.NewReplacer("{thread}", "chat", "{run}", "root").Replace(rt.Pattern)
		r := f.get("acme", path+"?atLeast=3:999")
		if r.status != http.StatusTooEarly {
			t.Errorf("%s: %d %s", path, r.status, r.body)
			continue
		}
		pointer := "/paths/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(rt.Pattern)) +
			"/get/responses/425/content/" + strings.ReplaceAll(r.header.Get("Content-Type"), "/", "~1") + "/schema"
		described(t, pointer, r.body)
	}
}
