package query

import (
	"net/http"
	"testing"
)

func TestParam_SaysWhatIsAllowed(t *testing.T) {
	f := newFixture(t)
	conversation(f)
	for path, want := range map[string]string{
		"/v1/threads?limit=many":                        `limit must be a whole number from 1 to 1000, not "many"`,
		"/v1/threads?since=yesterday":                   `since must be a time such as 2026-09-17T12:00:00Z, not "yesterday"`,
		"/v1/threads?status=done":                       `status must be running, finished, error, interrupted, cancelled or abandoned, not "done"`,
		"/v1/dead-letters?after=5":                      `after must be a position such as 3:1024, not "5"`,
		"/v1/dead-letters?since=now":                    `since must be a time such as 2026-09-17T12:00:00Z, not "now"`,
		"/v1/threads/chat?atLeast=5":                    `atLeast must be a position such as 3:1024, not "5"`,
		"/v1/threads/chat/lineage?format=png":           `format must be json, mermaid or text, not "png"`,
		"/v1/threads/chat/checkout?at=middle":           `at must be the number of a step, a position such as 3:1024, a time such as @2026-09-17T12:00:00Z, start or end, not "middle"`,
		"/v1/threads/chat/export?startedAt=2026-09-17":  `startedAt must be a time such as 2026-09-17T12:00:00Z, not "2026-09-17"`,
		"/v1/threads/chat/runs/root/export?report=1":    `report must be true or false, not "1"`,
		"/v1/threads/chat/runs/root/export?report=True": `report must be true or false, not "True"`,
	} {
		if got := f.get("acme", path).problem(t, http.StatusBadRequest); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
	// What is empty is as what is not given.
	if r := f.get("acme", "/v1/threads?limit=&since=&status="); r.status != http.StatusOK {
		t.Errorf("empty parameters: %d %s", r.status, r.body)
	}
}
