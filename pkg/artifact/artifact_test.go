package artifact_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/artifact"
	"github.com/skeinhq/skein/schemas"
)

// ruleFile is one of testdata/rules: RULE.pass.EXT keeps the rule at its very edge, RULE.fail.EXT breaks
// it. Where a rule can be broken in several ways, RULE.fail.CASE.EXT are the others. EXT is json for an
// artifact, jsonl for a capture, run.json for a folded run.
type ruleFile struct {
	name    string
	rule    artifact.Rule
	verdict string
	text    []byte
	read    func([]byte) error
}

func ruleFiles(tb testing.TB) []ruleFile {
	tb.Helper()
	paths, err := filepath.Glob("testdata/rules/*")
	if err != nil || len(paths) == 0 {
		tb.Fatal(len(paths), err)
	}
	var files []ruleFile
	for _, path := range paths {
		f := ruleFile{name: filepath.Base(path), read: readArtifact}
		if f.text, err = os.ReadFile(path); err != nil {
			tb.Fatal(err)
		}
		rule, rest, _ := strings.Cut(f.name, ".")
		f.rule = artifact.Rule(rule)
		f.verdict, _, _ = strings.Cut(rest, ".")
		switch {
		case strings.HasSuffix(f.name, ".run.json"):
			f.read = readRun
		case strings.HasSuffix(f.name, ".jsonl"):
			f.read = readCapture
		}
		files = append(files, f)
	}
	return files
}

func (f ruleFile) isArtifact() bool {
	return strings.HasSuffix(f.name, ".json") && !strings.HasSuffix(f.name, ".run.json")
}

func TestRules_EachHasAFileThatPassesAndOneThatFails(t *testing.T) {
	type count struct{ pass, fail int }
	counts := map[artifact.Rule]*count{}
	for _, rule := range artifact.Rules() {
		counts[rule] = &count{}
	}
	passing := map[string]string{}
	for _, f := range ruleFiles(t) {
		n := counts[f.rule]
		err := f.read(f.text)
		switch {
		case n == nil:
			t.Errorf("%s is of no rule", f.name)
		case f.verdict == "pass":
			n.pass++
			if err != nil {
				t.Errorf("%s: %v", f.name, err)
			}
			if other := passing[string(f.text)]; other != "" {
				t.Errorf("%s is %s: it says nothing of its own rule", f.name, other)
			}
			passing[string(f.text)] = f.name
		case f.verdict == "fail":
			n.fail++
			if artifact.RuleOf(err) != f.rule {
				t.Errorf("%s: %v", f.name, err)
			}
		default:
			t.Errorf("%s: neither pass nor fail", f.name)
		}
	}
	for rule, n := range counts {
		if n.pass != 1 || n.fail == 0 {
			t.Errorf("%s: %d files pass, want one, and %d fail, want one at least", rule, n.pass, n.fail)
		}
	}
}

// Every field of the schema, taken away, of another type, and at and beyond its limits.
func TestDecode_HoldsEachFieldToTheSchema(t *testing.T) {
	schema := compileSchema(t)
	check := func(what string, want artifact.Rule, edit func(root, message map[string]any)) {
		t.Helper()
		message := map[string]any{"id": "m1", "role": "user", "content": "Hello", "name": "Ann"}
		root := map[string]any{
			"schema": artifact.Schema, "framework": artifact.Framework, "surface": artifact.Surface,
			"thread_id_ref": "t", "run_id_ref": "r", "parent_run_id_ref": "p", "started_at": "2026-04-14T19:00:00Z",
			"finished_at": "2026-04-14T19:00:02Z",
			"messages":    []any{message}, "terminal_event": "RUN_ERROR", "error_message": "no answer", "error_code": "timeout",
		}
		edit(root, message)
		b := []byte(jsonOf(t, root))
		if err := readArtifact(b); artifact.RuleOf(err) != want {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		if err := fits(schema, b); (err == nil) != (want == "") {
			t.Errorf("%s: the schema says %v", what, err)
		}
	}
	set := func(field string, v any) func(root, message map[string]any) {
		return func(root, message map[string]any) {
			if name, ok := strings.CutPrefix(field, "messages."); ok {
				root = message
				field = name
			}
			if root[field] == nil {
				t.Fatalf("there is no %s", field)
			}
			root[field] = v
			if v == nil {
				delete(root, field)
			}
		}
	}
	check("as it is", "", func(_, _ map[string]any) {})

	var contract struct {
		Required   []string
		Properties map[string]struct {
			Items struct {
				Required   []string
				Properties map[string]any
			}
		}
	}
	if err := json.Unmarshal(schemas.ExportV1, &contract); err != nil {
		t.Fatal(err)
	}
	message := contract.Properties["messages"].Items
	required := slices.Clone(contract.Required)
	for _, name := range message.Required {
		required = append(required, "messages."+name)
	}
	fields := slices.Collect(maps.Keys(contract.Properties))
	for name := range message.Properties {
		fields = append(fields, "messages."+name)
	}
	for _, field := range fields {
		want := artifact.Rule("")
		switch {
		case slices.Contains(required, field):
			want = artifact.RuleMissing
		case field == "error_message": // and the code stays
			want = artifact.RuleCodeAlone
		}
		check("no "+field, want, set(field, nil))
		check(field+" is a number", artifact.RuleType, set(field, 7))
	}
	limits := map[string]int{
		"thread_id_ref": 512, "run_id_ref": 512, "parent_run_id_ref": 512, "messages.id": 512, "messages.name": 512,
		"error_message": 500, "error_code": 100,
	}
	for field, limit := range limits {
		check(field+" is empty", artifact.RuleLength, set(field, ""))
		check(field+" has its length", "", set(field, strings.Repeat("é", limit)))
		check(field+" is too long", artifact.RuleLength, set(field, strings.Repeat("é", limit+1)))
		address := artifact.Rule("")
		if limit == artifact.MaxRef && field != "messages.name" {
			address = artifact.RuleAddress
		}
		check(field+" is an address", address, set(field, "https://example.org"))
	}
	for _, field := range []string{"error_message", "error_code"} {
		check(field+" has two lines", artifact.RuleLines, set(field, "a\nb"))
		check(field+" ends with its line", artifact.RuleLines, set(field, "a\r"))
	}
	for _, field := range []string{"started_at", "finished_at"} {
		check(field+" is a day", artifact.RuleTime, set(field, "2026-04-14"))
	}
}

func readArtifact(b []byte) error {
	_, err := artifact.Decode(b)
	return err
}

func readCapture(b []byte) error {
	var events [][]byte
	for line := range bytes.Lines(b) {
		events = append(events, bytes.TrimSpace(line))
	}
	_, _, err := artifact.FromEnvelope(events, time.Time{})
	return err
}

func readRun(b []byte) error {
	var in struct {
		ThreadID, RunID string
		StartedAt       time.Time
		Started         json.RawMessage
		Messages        []agui.Message
		Terminal        json.RawMessage
		Truncated       bool
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	r := artifact.Run{ThreadID: in.ThreadID, RunID: in.RunID, StartedAt: in.StartedAt, Messages: in.Messages, Truncated: in.Truncated}
	var err error
	if r.Started, err = agui.Decode(in.Started); err != nil {
		return err
	}
	if in.Terminal != nil {
		if r.Terminal, err = agui.Decode(in.Terminal); err != nil {
			return err
		}
	}
	_, _, err = artifact.FromRun(r, time.Time{})
	return err
}

// compileSchema is the contract as others read it.
func compileSchema(tb testing.TB) *jsonschema.Schema {
	tb.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemas.ExportV1))
	if err != nil {
		tb.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("export.json", doc); err != nil {
		tb.Fatal(err)
	}
	s, err := c.Compile("export.json")
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// fits holds a document to the contract.
func fits(schema *jsonschema.Schema, b []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return err
	}
	return schema.Validate(doc)
}

// Times are read as RFC 3339 and the schema have them, which is less than time.Parse takes.
func TestDecode_TakesNoTimeThatTheSchemaRefuses(t *testing.T) {
	schema := compileSchema(t)
	base, err := os.ReadFile("testdata/rules/content-parts.pass.json")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"2026-04-14T19:00:00Z": true, "2026-04-14T19:00:00.123456789+23:59": true,
		"2026-04-14T19:00:00,5Z": false, "2026-04-14T9:00:00Z": false, "2026-04-14T19:00:00+24:00": false,
		"2026-04-14T19:00:00+2:00": false, "2026-02-30T19:00:00Z": false, "2026-04-14T19:00:00": false,
	} {
		b := bytes.Replace(base, []byte("2026-04-14T19:00:00Z"), []byte(text), 1)
		if _, err := artifact.Decode(b); (err == nil) != want || (fits(schema, b) == nil) != want {
			t.Errorf("%s: Decode says %v, the schema %v, want %v", text, err, fits(schema, b), want)
		}
	}
}

func FuzzDecode_AcceptsNothingThatTheSchemaRefuses(f *testing.F) {
	schema := compileSchema(f)
	for _, file := range ruleFiles(f) {
		if file.isArtifact() {
			f.Add(file.text)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := artifact.Decode(b)
		if err != nil {
			if artifact.RuleOf(err) == "" {
				t.Fatalf("%v names no rule", err)
			}
			return
		}
		if err := fits(schema, b); err != nil {
			t.Fatalf("accepted against the schema: %v", err)
		}
		roundTrip(t, a)
	})
}

func FuzzFromEnvelope_GivesNothingThatTheSchemaRefuses(f *testing.F) {
	schema := compileSchema(f)
	for _, file := range ruleFiles(f) {
		if strings.HasSuffix(file.name, ".jsonl") {
			f.Add(file.text)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, report, err := artifact.FromEnvelope(bytes.Split(bytes.TrimSpace(b), []byte("\n")), time.Time{})
		if err != nil {
			if artifact.RuleOf(err) == "" {
				t.Fatalf("%v names no rule", err)
			}
			return
		}
		if report.Messages != len(a.Messages) {
			t.Fatalf("%d messages, reported as %d", len(a.Messages), report.Messages)
		}
		out, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := fits(schema, out); err != nil {
			t.Fatalf("%s against the schema: %v", out, err)
		}
	})
}

type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func roundTrip(t fataler, a *artifact.Artifact) {
	t.Helper()
	b, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := artifact.Decode(b)
	if err != nil {
		t.Fatalf("%v in what was written: %s", err, b)
	}
	if !reflect.DeepEqual(again, a) {
		t.Fatalf("%+v became %+v", a, again)
	}
	twice, err := again.Encode()
	if err != nil || !bytes.Equal(twice, b) {
		t.Fatalf("%s became %s (%v)", b, twice, err)
	}
}

func TestArtifact_SurvivesARoundTrip(t *testing.T) {
	schema := compileSchema(t)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		a := &artifact.Artifact{
			ThreadIDRef: rapid.StringN(1, 20, -1).Draw(t, "thread"), RunIDRef: rapid.StringN(1, 20, -1).Draw(t, "run"),
			ParentRunIDRef: rapid.StringN(0, 20, -1).Draw(t, "parent"),
			StartedAt:      time.UnixMilli(rapid.Int64Range(0, 253402300799999).Draw(t, "started")).UTC(),
			TerminalEvent:  agui.RunFinished, Messages: []artifact.Message{},
		}
		if rapid.Bool().Draw(t, "finished") {
			a.FinishedAt = a.StartedAt.Add(time.Second)
		}
		if rapid.Bool().Draw(t, "error") {
			a.TerminalEvent = agui.RunError
			a.ErrorMessage = rapid.StringMatching(`[^\r\n]{0,40}`).Draw(t, "message")
			if a.ErrorMessage != "" {
				a.ErrorCode = rapid.StringMatching(`[^\r\n]{0,40}`).Draw(t, "code")
			}
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "messages") {
			a.Messages = append(a.Messages, artifact.Message{
				ID: string(rune('a'+i)) + rapid.StringN(0, 10, -1).Draw(t, "id"), Role: rapid.SampledFrom(artifact.Roles()).Draw(t, "role"),
				Content: text.Draw(t, "content"), Name: rapid.StringN(0, 10, -1).Draw(t, "name"),
			})
		}
		if err := a.Validate(); err != nil {
			if artifact.RuleOf(err) == "" {
				t.Fatal(err)
			}
			t.Skip("breaks a rule") // such as an id that is an address
		}
		roundTrip(t, a)
		b, err := a.Encode()
		if err == nil {
			err = fits(schema, b)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}
