package tenants

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// Ids of any text, of threads and runs, all the way from ingest to what is read. Two tenants use the same
// ones; a parent that only the other tenant has is a run of nowhere.
func TestTenants_IDsOfAnyText(t *testing.T) {
	t.Run("kfake and SQLite", func(t *testing.T) {
		t.Parallel()
		k, st := fakeEnds(t)
		idsOfAnyText(t, startSite(t, k, st))
	})
	t.Run("real Kafka and real ClickHouse", func(t *testing.T) {
		t.Parallel()
		k, st := realEnds(t)
		idsOfAnyText(t, startSite(t, k, st))
	})
}

func idsOfAnyText(t *testing.T, s *site) {
	ids := []string{
		"a/b", "/", "a//b/", "%2F", "a%00b", `"`, `'"` + "`", `\`, `\u0000`, "nul\x00after", "\x00", "\u202eright to left\u2066", "\u200f",
		strings.Repeat("🦊", 128), strings.Repeat("x", 512), "line\nfeed\r\t", " ", "a b+c", "ä", "a\u0308", "...", "?a=b#c", "';DROP TABLE runs;--", "{}", "$1", "~2", "r~2",
	}
	answer := func(who, path string, ok func(reply) bool) reply {
		var got reply
		s.eventually(who+" reads "+path, func() (string, bool) {
			got = s.call(s.stages[1], http.MethodGet, path, s.as(who))
			return got.String(), got.status == http.StatusOK && ok(got)
		})
		return got
	}
	first := "the first run of acme"
	for _, id := range ids {
		for _, who := range []string{"acme", "umbrella"} {
			if who == "acme" {
				s.say(who, id, first, "", who+" begins")
			}
			s.say(who, id, id, first, who+" says it")
		}
	}
	for _, id := range ids {
		thread := "/v1/threads/" + url.PathEscape(id)
		for _, who := range []string{"acme", "umbrella"} {
			history := answer(who, thread+"/runs/"+url.PathEscape(id)+"/history", func(r reply) bool { return strings.Contains(r.body, `"finished"`) })
			var h struct {
				ThreadID, RunID string
				Messages        []struct{ ID, Content string }
			}
			if err := json.Unmarshal([]byte(history.body), &h); err != nil {
				t.Fatal(err)
			}
			said := h.Messages[len(h.Messages)-1]
			if h.ThreadID != id || h.RunID != id || said.ID != id || said.Content != who+" says it" || strings.Contains(history.body, "acme") != (who == "acme") {
				t.Errorf("%q for %s: %s", id, who, history.body)
			}
			var l struct {
				Runs []struct{ RunID, ParentRunID, SpawnedBy string }
			}
			lineage := answer(who, thread+"/lineage", func(reply) bool { return true })
			if err := json.Unmarshal([]byte(lineage.body), &l); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("[{%s  } {%s %s }]", first, id, first)
			if who == "umbrella" {
				want = fmt.Sprintf("[{%s  %s}]", id, first)
			}
			if got := fmt.Sprint(l.Runs); got != want {
				t.Errorf("%q for %s: the lineage is %q, want %q", id, who, got, want)
			}
			proofs := answer(who, thread+"/verify", func(reply) bool { return true })
			if n := strings.Count(proofs.body, `"verdict":"proved"`); n != len(l.Runs) {
				t.Errorf("%q for %s: %s", id, who, proofs.body)
			}
			raw := answer(who, thread+"/events", func(reply) bool { return true })
			if n := strings.Count(raw.body, "\n"); n != 3*len(l.Runs) || strings.Contains(raw.body, "acme says") != (who == "acme") {
				t.Errorf("%q for %s: the raw events are %s", id, who, raw.body)
			}
		}
	}
	var page struct{ Threads []struct{ ThreadID string } }
	if err := json.Unmarshal([]byte(answer("umbrella", "/v1/threads?limit=1000", func(reply) bool { return true }).body), &page); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, thread := range page.Threads {
		got = append(got, thread.ThreadID)
	}
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		t.Errorf("the threads are %q, want %q", got, ids)
	}
	for _, bad := range []string{".", "..", "", strings.Repeat("🦊", 129), "\xff"} {
		r := s.send(http.MethodPost, s.stages[0].url+"/v1/threads/"+strings.ReplaceAll(url.PathEscape(bad), ".", "%2E")+"/runs/r/events",
			http.Header{"Authorization": s.as("acme")["Authorization"], "Content-Type": {"application/x-ndjson"}}, strings.NewReader(`{"type":"RUN_STARTED"}`))
		refused(t, fmt.Sprintf("the id %q", bad), r, http.StatusBadRequest)
	}
}

// say publishes a run that names a parent, or none, and says one message of the run's own id.
func (s *site) say(who, thread, run, parent, text string) {
	s.t.Helper()
	event := func(members map[string]any) string {
		b, err := json.Marshal(members)
		if err != nil {
			s.t.Fatal(err)
		}
		return string(b)
	}
	started := map[string]any{"type": "RUN_STARTED", "threadId": thread, "runId": run}
	if parent != "" {
		started["parentRunId"] = parent
	}
	header := s.as(who)
	header.Set("Content-Type", "application/x-ndjson")
	r := s.send(http.MethodPost, s.stages[0].url+"/v1/threads/"+url.PathEscape(thread)+"/runs/"+url.PathEscape(run)+"/events", header, strings.NewReader(strings.Join([]string{
		event(started),
		event(map[string]any{"type": "TEXT_MESSAGE_CHUNK", "messageId": run, "role": "assistant", "delta": text}),
		event(map[string]any{"type": "RUN_FINISHED", "threadId": thread, "runId": run}),
	}, "\n")))
	if r.status != http.StatusOK {
		s.t.Fatalf("publishing %q of %q: %s", run, thread, r)
	}
}
