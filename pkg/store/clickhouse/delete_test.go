package clickhouse

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// What is older than a tombstone is gone from the tables, not only out of sight: also where the id of the
// run came again in the same write, and has fewer messages than before.
func TestWrite_LeavesNoRowOlderThanATombstone(t *testing.T) {
	s := open(t)
	entry := func(version int64, thread string, messages ...string) store.Entry {
		r := &record.Run{Tenant: "acme", ThreadID: thread, RunID: "r", Status: record.StatusFinished, Lineage: record.Lineage{ParentBy: record.ParentNone},
			StartedAt: time.Unix(1, 0), State: json.RawMessage(`{"of":1}`)}
		for _, m := range messages {
			r.Messages = append(r.Messages, agui.Message{ID: m, Role: "user", Raw: json.RawMessage(`{"id":"` + m + `"}`)})
		}
		return store.Entry{Version: version, Tenant: "acme", ThreadID: thread, RunID: "r", Run: r}
	}
	tombstone := func(version int64, thread string) store.Entry {
		return store.Entry{Version: version, Tenant: "acme", ThreadID: thread, RunID: "r"}
	}
	write := func(entries ...store.Entry) {
		t.Helper()
		if err := s.Write(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
	}
	write(entry(10, "t", "a", "b", "c"), entry(11, "gone", "a", "b"), entry(12, "stays", "a"))
	write(tombstone(20, "t"), tombstone(21, "gone"), entry(30, "t", "new"))
	for table, want := range map[string]uint64{"messages": 2, "states": 2, "runs": 3} { // runs: with the tombstone of gone
		var n uint64
		deadline := time.Now().Add(30 * time.Second) // the server deletes in its own time
		for n = math.MaxUint64; n != want && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if err := s.conn.QueryRow(t.Context(), "SELECT count() FROM "+table+" WHERE tenant = 'acme'").Scan(&n); err != nil {
				t.Fatal(err)
			}
		}
		if n != want {
			t.Errorf("%s has %d rows, want %d", table, n, want)
		}
	}
}
