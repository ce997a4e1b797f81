package query

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/skeinhq/skein/pkg/artifact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

func TestExport_GivesTheArtifactOfARun(t *testing.T) {
	f := newFixture(t)
	conversation(f)
	for path, parent := range map[string]string{
		"/v1/threads/chat/runs/root/export": "",
		"/v1/threads/chat/runs/leaf/export": "", // inferred, and so not observed
	} {
		r := f.get("acme", path)
		a, err := artifact.Decode([]byte(r.body))
		if err != nil || r.status != http.StatusOK {
			t.Fatalf("%s: %v in %d %s", path, err, r.status, r.body)
		}
		if a.ThreadIDRef != "chat" || a.ParentRunIDRef != parent || len(a.Messages) == 0 || a.FinishedAt.IsZero() {
			t.Errorf("%s: %+v", path, a)
		}
	}
	again := run("chat", "root~2", 8, msg("x", "user", "hi"))
	again.ClientRunID = "root"
	f.put(again)
	if a, err := artifact.Decode([]byte(f.get("acme", "/v1/threads/chat/runs/root~2/export").body)); err != nil || a.RunIDRef != "root" {
		t.Errorf("an id that was used again: %+v, %v", a, err)
	}
	named := run("chat", "named", 9, msg("x", "user", "hi"), msg("p", "activity", "a plan"))
	named.ParentRunID, named.ParentBy = "root~2", record.ParentExplicit // whose platform calls it root
	f.put(named)
	var answer struct {
		Artifact json.RawMessage
		Report   artifact.Report
	}
	f.json("/v1/threads/chat/runs/named/export?report=true&startedAt=2026-04-14T19:00:00Z", &answer)
	timed := run("chat", "timed", 10, msg("x", "user", "hi"))
	timed.Started = json.RawMessage(`{"type":"RUN_STARTED","threadId":"chat","runId":"timed","timestamp":1776193200000}`)
	f.put(timed)
	for id, want := range map[string]struct {
		from    string
		basis   lineage.Basis
		remarks string
	}{
		"timed": {artifact.FromEvent, lineage.BasisNone, ""}, // though its record has another time
		"root":  {artifact.FromRecord, lineage.BasisInput, ""},
		"left":  {artifact.FromRecord, lineage.BasisParent, ""},
		"leaf":  {artifact.FromRecord, lineage.BasisInferred, "inferred"},
	} {
		path := "/v1/threads/chat/runs/" + id + "/export"
		var a struct{ Report artifact.Report }
		f.json(path+"?report=true", &a)
		remarks := f.get("acme", path).header.Get(headerRemarks)
		if a.Report.StartedAtFrom != want.from || a.Report.Basis != string(want.basis) || remarks != want.remarks {
			t.Errorf("%s: time from %q, basis %q, remarks %q, want %+v", id, a.Report.StartedAtFrom, a.Report.Basis, remarks, want)
		}
	}
	a, err := artifact.Decode(answer.Artifact)
	if err != nil {
		t.Fatal(err)
	}
	if a.ParentRunIDRef != "root" || a.StartedAt.Year() != 2026 || answer.Report.StartedAtFrom != artifact.FromOption ||
		answer.Report.Messages != 1 || answer.Report.LeftOut["activity"] != 1 {
		t.Errorf("%+v, %+v", a, answer.Report)
	}
}

func TestExport_NamesTheRuleThatARunBreaks(t *testing.T) {
	f := newFixture(t)
	f.put(opened(run("chat", "open", 1, msg("u", "user", "hi"))))
	cut := run("chat", "cut", 2, msg("u", "user", "hi"))
	cut.Truncated = true
	f.put(cut)
	given := run("chat", "given", 3, msg("u", "user", "hi"))
	given.Synthetic, given.Status = true, record.StatusAbandoned
	f.put(given)
	mixed := run("chat", "mixed", 5, msg("u", "user", "hi"))
	mixed.Started = json.RawMessage(`{"type":"RUN_STARTED","threadId":"chat","runId":"mixed"}`)
	mixed.Terminal = json.RawMessage(`{"type":"RUN_FINISHED","threadId":"chat","runId":"other"}`)
	f.put(mixed)
	address := run("chat", "https://example.org/runs/1", 4, msg("u", "user", "hi"))
	f.put(address)
	for id, rule := range map[string]artifact.Rule{
		"open": artifact.RuleOpen, "cut": artifact.RuleTruncated, "given": artifact.RuleOpen, "mixed": artifact.RuleRunMismatch,
		address.RunID: artifact.RuleAddress,
	} {
		r := f.get("acme", pathOf("/v1/threads/{thread}/runs/{run}/export", "chat", id))
		r.problem(t, http.StatusConflict)
		var p struct{ Rule artifact.Rule }
		if err := json.Unmarshal([]byte(r.body), &p); err != nil || p.Rule != rule {
			t.Errorf("%s: %s", id, r.body)
		}
	}
	f.get("acme", "/v1/threads/chat/runs/open/export?startedAt=0001-01-01T00:00:00Z").problem(t, http.StatusBadRequest)
}
