package artifact_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/artifact"
	"github.com/skeinhq/skein/schemas"
)

// Every rule has a file that keeps it and one that breaks it and no other: RULE.pass.EXT and
// RULE.fail.EXT, where EXT is json for an artifact, jsonl for a capture, run.json for a folded run.
func TestRules_EachHasAFileThatPassesAndOneThatFails(t *testing.T) {
	for _, rule := range artifact.Rules() {
		t.Run(string(rule), func(t *testing.T) {
			found := 0
			for ext, read := range map[string]func([]byte) error{".json": readArtifact, ".jsonl": readCapture, ".run.json": readRun} {
				pass, err := os.ReadFile(filepath.Join("testdata", "rules", string(rule)+".pass"+ext))
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				found++
				fail, err := os.ReadFile(filepath.Join("testdata", "rules", string(rule)+".fail"+ext))
				if err != nil {
					t.Fatal(err)
				}
				if err := read(pass); err != nil {
					t.Errorf("the file that passes: %v", err)
				}
				if err := read(fail); artifact.RuleOf(err) != rule {
					t.Errorf("the file that fails: %v", err)
				}
			}
			if found != 1 {
				t.Errorf("there are %d pairs of files", found)
			}
		})
	}
}

func readArtifact(b []byte) error {
	_, err := artifact.Decode(b)
	return err
}

func readCapture(b []byte) error {
	var events []artifact.Captured
	for line := range bytes.Lines(b) {
		events = append(events, artifact.Captured{Raw: bytes.TrimSpace(line)})
	}
	_, _, err := artifact.FromEnvelope(events, time.Time{})
	return err
}

func readRun(b []byte) error {
	var in struct {
		ThreadID, RunID string
		StartedAt       time.Time
		Messages        []agui.Message
		Terminal        json.RawMessage
		Truncated       bool
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	r := artifact.Run{ThreadID: in.ThreadID, RunID: in.RunID, StartedAt: in.StartedAt, Messages: in.Messages, Truncated: in.Truncated}
	if in.Terminal != nil {
		var err error
		if r.Terminal, err = agui.Decode(in.Terminal); err != nil {
			return err
		}
	}
	_, _, err := artifact.FromRun(r, time.Time{})
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

// What the schema can say it says of the files as this package does.
func TestDecode_AgreesWithTheSchema(t *testing.T) {
	schema := compileSchema(t)
	beyond := map[string]bool{"repeated-field": true, "not-unicode": true, "duplicate-message-id": true}
	files, err := filepath.Glob("testdata/rules/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".run.json") {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		valid := err == nil && schema.Validate(doc) == nil
		rule, _, _ := strings.Cut(filepath.Base(file), ".")
		if beyond[rule] {
			continue
		}
		if _, err := artifact.Decode(b); (err == nil) != valid {
			t.Errorf("%s: schema says valid is %v, Decode says %v", file, valid, err)
		}
	}
}

// Times are read as RFC 3339 and the schema have them, which is less than time.Parse takes.
func TestDecode_TakesNoTimeThatTheSchemaRefuses(t *testing.T) {
	schema := compileSchema(t)
	base, err := os.ReadFile("testdata/rules/schema.pass.json")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"2026-04-14T19:00:00Z": true, "2026-04-14T19:00:00.123456789+23:59": true,
		"2026-04-14T19:00:00,5Z": false, "2026-04-14T9:00:00Z": false, "2026-04-14T19:00:00+24:00": false,
		"2026-04-14T19:00:00+2:00": false, "2026-02-30T19:00:00Z": false, "2026-04-14T19:00:00": false,
	} {
		b := bytes.Replace(base, []byte("2026-04-14T19:00:00Z"), []byte(text), 1)
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := artifact.Decode(b); (err == nil) != want || (schema.Validate(doc) == nil) != want {
			t.Errorf("%s: Decode says %v, the schema %v, want %v", text, err, schema.Validate(doc), want)
		}
	}
}

func FuzzDecode_AcceptsNothingThatTheSchemaRefuses(f *testing.F) {
	schema := compileSchema(f)
	files, err := filepath.Glob("testdata/rules/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal(len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := artifact.Decode(b)
		if err != nil {
			if artifact.RuleOf(err) == "" {
				t.Fatalf("%v names no rule", err)
			}
			return
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(doc); err != nil {
			t.Fatalf("accepted against the schema: %v", err)
		}
		roundTrip(t, a)
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
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(doc); err != nil {
			t.Fatal(err)
		}
	})
}
