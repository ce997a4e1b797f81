package clickhouse

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// An erased thread leaves the disk: every table, counted without the mask that hides deleted rows.
func TestSweep_RemovesWhatWasErased(t *testing.T) {
	s := open(t)
	answered := func(version int64, thread string) store.Entry { // with rows in each table
		e := told(version, thread, "r")
		e.Run.Resumes = []json.RawMessage{json.RawMessage(`{"interruptId":"i","status":"resolved","payload":true}`)}
		return e
	}
	titled := func(version int64, thread string) store.Entry {
		return store.Entry{Partition: 3, Version: version, Tenant: "t", ThreadID: thread,
			Detail: &record.Detail{Name: record.DetailTitle, Value: "secret"}}
	}
	erase := func(version int64, thread string) {
		t.Helper()
		if err := s.Write(t.Context(), []store.Entry{
			answered(version, thread), answered(version+1, "stays-"+thread), titled(version, thread), titled(version+1, "stays-"+thread),
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.Write(t.Context(), []store.Entry{
			{Partition: 3, Version: version + 2, Tenant: "t", ThreadID: thread, RunID: "r"},
			{Partition: 3, Version: version + 3, Tenant: "t", ThreadID: thread, Erasure: &store.Erasure{Below: 100, At: time.Unix(1, 0)}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	is := func(thread string) bool {
		t.Helper()
		gone, err := s.Purged(t.Context(), "t", thread)
		if err != nil {
			t.Fatal(err)
		}
		return gone
	}
	sweep := func(notWithin time.Duration) {
		t.Helper()
		if err := s.Sweep(t.Context(), notWithin); err != nil {
			t.Fatal(err)
		}
	}
	const sweeps = "SELECT toString(count()) FROM system.mutations WHERE database = currentDatabase() AND command LIKE '%APPLY DELETED MASK%'"
	deleted := func() bool {
		return text(t, s, "SELECT toString(count()) FROM system.mutations WHERE database = currentDatabase() AND NOT is_done") == "0"
	}
	erase(10, "gone")
	until("the deletion does not end", deleted)
	// As a migration that copies the table meanwhile.
	if err := s.conn.Exec(t.Context(), "INSERT INTO runs_by_time SELECT * REPLACE ('gone' AS thread_id, 10 AS version) FROM runs_by_time WHERE thread_id = 'stays-gone'"); err != nil {
		t.Fatal(err)
	}
	if is("gone") {
		t.Error("the rows are gone before anything removed them, so this test shows nothing")
	}
	until("the rows stay", func() bool { sweep(0); return is("gone") })
	for _, table := range append(slices.Clone(contentTables), detailTable) {
		query := "SELECT toString((countIf(thread_id = 'gone'), countIf(thread_id = 'stays-gone') > 0)) FROM " + table + " WHERE version != 12 SETTINGS apply_deleted_mask = 0"
		if got := text(t, s, query); got != "(0,1)" {
			t.Errorf("%s has %s of the erased and of the other thread", table, got)
		}
	}
	until("the removal does not end", deleted)
	before := text(t, s, sweeps)
	erase(20, "next")
	until("the deletion does not end", deleted)
	sweep(time.Hour)
	if after := text(t, s, sweeps); after != before {
		t.Errorf("%s removals within the hour, want %s", after, before)
	}
	if is("next") {
		t.Error("what is not yet removed is said to be gone")
	}
}

// A removal that the server was asked for and does not end is told of, until it does.
func TestSweep_TellsOfRowsThatStay(t *testing.T) {
	s := open(t)
	if err := s.Write(t.Context(), []store.Entry{told(10, "t", "r")}); err != nil {
		t.Fatal(err)
	}
	do := func(statement string) {
		t.Helper()
		if err := s.conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	do("ALTER TABLE messages APPLY DELETED MASK, DELETE WHERE throwIf(version > 0) SETTINGS mutations_sync = 0") // which fails, again and again
	ctx, cancel := context.WithCancel(t.Context())
	swept := make(chan error, 1)
	go func() { swept <- s.KeepSweeping(ctx, 4*time.Second, slog.New(slog.DiscardHandler)) }()
	until := func(what string, is func(error) bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !is(s.Overdue()); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", what, s.Overdue())
			}
		}
	}
	until("it says nothing", func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "removed nothing from messages") && strings.Contains(err.Error(), "throwIf")
	})
	do("KILL MUTATION WHERE database = currentDatabase() SYNC")
	until("it goes on saying it", func(err error) bool { return err == nil })
	cancel()
	if err := <-swept; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
