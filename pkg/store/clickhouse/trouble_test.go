package clickhouse

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// What is wrong with a row and what is wrong with the server differ: only the first can be helped by leaving the row out.
func TestWrite_TellsARefusedRowFromAServerInTrouble(t *testing.T) {
	s := open(t)
	for i, c := range []struct {
		name, begin, end string
		want             error
		says             string
	}{
		{
			"a constraint", "ALTER TABLE runs ADD CONSTRAINT c CHECK client_run_id != 'bad'", "ALTER TABLE runs DROP CONSTRAINT c",
			store.ErrRefused, "VIOLATED_CONSTRAINT",
		},
		{
			"a view that throws",
			"CREATE MATERIALIZED VIEW v ENGINE = Null AS SELECT throwIf(client_run_id = 'bad', 'no such runs here') AS x FROM runs", //nolint:misspell // the server's spelling
			"DROP TABLE v",
			store.ErrRefused, "no such runs here",
		},
		{
			"no room on the disk", "ALTER TABLE runs MODIFY SETTING min_free_disk_bytes_to_perform_insert = 1000000000000000000",
			"ALTER TABLE runs RESET SETTING min_free_disk_bytes_to_perform_insert", ErrUnavailable, "NOT_ENOUGH_SPACE",
		},
		{
			"too many parts", "ALTER TABLE runs MODIFY SETTING parts_to_throw_insert = 1, parts_to_delay_insert = 1",
			"ALTER TABLE runs RESET SETTING parts_to_throw_insert, parts_to_delay_insert", ErrUnavailable, "TOO_MANY_PARTS",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := sealedEntry(int64(10*i + 1))
			run := *bad.Run
			run.ClientRunID, bad.Run = "bad", &run
			good := sealedEntry(int64(10*i + 2))
			good.RunID = "good"
			refused := errors.Is(c.want, store.ErrRefused)
			if err := s.exec(t.Context(), c.begin); err != nil {
				t.Fatal(err)
			}
			err := s.Write(t.Context(), []store.Entry{bad, good})
			if !errors.Is(err, c.want) || errors.Is(err, store.ErrRefused) != refused || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %v with %s", err, c.want, c.says)
			}
			if err := s.Write(t.Context(), []store.Entry{good}); (err == nil) != refused {
				t.Errorf("without the row: %v", err)
			}
			if err := s.exec(t.Context(), c.end); err != nil {
				t.Fatal(err)
			}
			if err := s.Write(t.Context(), []store.Entry{bad, good}); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// The server inserts, and does not answer in time: the writer gives up, and what it writes again is there once.
func TestWrite_AgainWhereTheAnswerIsLate(t *testing.T) {
	o := optionsFor(t)
	var late atomic.Bool
	o.Addrs = []string{clickhousetest.Door(t, o.Addrs[0], func(s clickhousetest.Statement) error {
		if late.Load() && s.Is("INSERT INTO runs ") {
			return clickhousetest.ErrLate
		}
		return nil
	})}
	if err := connect(t, o).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	impatient := connect(t, o)
	impatient.insertTimeout = 10 * time.Millisecond // and the grace of bounded
	entries := []store.Entry{withMessages(sealedEntry(1), record.StatusFinished, 3)}
	late.Store(true)
	if err := impatient.Write(t.Context(), entries); !errors.Is(err, ErrUnavailable) || errors.Is(err, store.ErrRefused) {
		t.Errorf("error %v, want %v", err, ErrUnavailable)
	}
	late.Store(false)
	if n := text(t, impatient, "SELECT toString(count()) FROM runs"); n != "1" {
		t.Fatalf("%s rows are inserted before it is written again, want 1: the test shows nothing", n)
	}
	if err := impatient.Write(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]string{"runs": "1", "runs_by_time": "1", "messages": "3", "states": "1"} {
		if n := text(t, impatient, "SELECT toString(count()) FROM "+table); n != want {
			t.Errorf("%s has %s rows, want %s", table, n, want)
		}
	}
}

// An indexer that is killed at any statement between its first insert and its commit, whether the server has carried that out or not,
// leaves nothing that shows once another has written the same records in other blocks.
func TestWrite_KilledAtEachStatement(t *testing.T) {
	o := optionsFor(t)
	s := connect(t, o)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left atomic.Int64
	var how atomic.Value
	dying := o
	dying.Addrs = []string{clickhousetest.Door(t, o.Addrs[0], func(s clickhousetest.Statement) error {
		if !s.Is("INSERT ") && !strings.Contains(s.Text, "DELETE FROM ") {
			return nil
		}
		switch n := left.Add(-1); {
		case n > 0:
			return nil
		case n == 0:
			return how.Load().(error)
		default: // a process that is dead sends nothing more
			return clickhousetest.ErrCut
		}
	})}
	killed := connect(t, dying)
	// Checkpoints and ends of runs, an erased thread, and how far the partition is.
	history := func(tenant string) []store.Entry {
		var entries []store.Entry
		for i := range 12 {
			for version, status := range []record.Status{record.StatusRunning, record.StatusInterrupted} {
				e := told(int64(20*i+10*version), fmt.Sprint("thread-", i/4), fmt.Sprint("run-", i%4))
				e.Run.Status, e.Run.Resumes = status, []json.RawMessage{json.RawMessage(`{"interruptId":"h","status":"resolved"}`)}
				entries = append(entries, e)
			}
		}
		erased := map[string]bool{}
		for i := range entries {
			entries[i].Tenant = tenant
			if entries[i].ThreadID == entries[0].ThreadID {
				erased[entries[i].RunID] = true
			}
		}
		version := int64(100_000)
		for _, run := range slices.Sorted(maps.Keys(erased)) {
			entries = append(entries, store.Entry{Partition: 3, Version: version, Tenant: tenant, ThreadID: entries[0].ThreadID, RunID: run})
			version++
		}
		return append(entries,
			store.Entry{Partition: 3, Version: version, Tenant: tenant, ThreadID: entries[0].ThreadID,
				Erasure: &store.Erasure{Below: 9, At: time.Unix(1_800_000_000, 0).UTC()}},
			store.Entry{Partition: 3, Version: version + 1, Position: &store.Position{Next: 50_000}})
	}
	rows := func(tenant string) string {
		for text(t, s, "SELECT toString(count()) FROM system.mutations WHERE database = currentDatabase() AND NOT is_done") != "0" { // until deletions are carried out
		}
		var all []string
		for _, table := range append([]string{"erasures", "positions"}, contentTables...) {
			columns := "*"
			if table == "runs_by_time" {
				columns = "* EXCEPT run_hash" // of the tenant too
			}
			all = append(all, table+" "+text(t, s, "SELECT toString(count()) || ' ' || toString(groupBitXor(sipHash64(replaceAll(formatRow('TSV', "+columns+"), '"+tenant+"', '')))) FROM "+table+" FINAL WHERE tenant = '"+tenant+"'"))
		}
		return strings.Join(all, "\n")
	}
	if err := s.Write(t.Context(), history("case-whole")); err != nil {
		t.Fatal(err)
	}
	want := rows("case-whole")
	var tenants []string
	var begins, rest []store.Entry // what the next process writes, of all cases together: its blocks end elsewhere
	for name, err := range map[string]error{"cut": clickhousetest.ErrCut, "lost": clickhousetest.ErrLost} {
		how.Store(err)
		for n := int64(1); ; n++ {
			tenant := fmt.Sprintf("case-%s-%d", name, n)
			entries := history(tenant)
			left.Store(n)
			err := killed.Write(t.Context(), entries)
			if err != nil && !errors.Is(err, ErrUnavailable) {
				t.Fatalf("%s at %d: %v", name, n, err)
			}
			tenants, begins, rest = append(tenants, tenant), append(begins, entries[:len(entries)/3]...), append(rest, entries[len(entries)/3:]...)
			if err == nil {
				if n < 12 {
					t.Errorf("a write is %d statements: the test has not seen all of them", n-1)
				}
				break
			}
		}
	}
	for _, block := range [][]store.Entry{begins, rest} {
		if err := s.Write(t.Context(), block); err != nil {
			t.Fatal(err)
		}
	}
	for _, tenant := range tenants {
		if got := rows(tenant); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", tenant, got, want)
		}
	}
}
