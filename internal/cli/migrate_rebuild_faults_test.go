package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// erase publishes what a compactor does that erases a thread of runRecords.
func (b *rebuildBed) erase(t *testing.T, i int) {
	t.Helper()
	thread := fmt.Sprintf("thread-%04d", i)
	var records []*kgo.Record
	for _, run := range []string{"one", "two"} {
		key, err := record.RunKey("acme", thread, run)
		if err != nil {
			t.Error(err)
		}
		records = append(records, &kgo.Record{Topic: b.cfg.Topics().Runs, Partition: int32(i % 4), Key: []byte(key),
			Headers: kafka.Headers(record.Headers{Kind: record.KindRun, Seq: -1})})
	}
	key, err := record.ThreadKey("acme", thread)
	if err != nil {
		t.Error(err)
	}
	records = append(records, &kgo.Record{Topic: b.cfg.Topics().Runs, Partition: int32(i % 4), Key: []byte(key),
		Value: record.EncodeErased(int64(i)*10 + 4), Headers: kafka.Headers(record.Headers{Kind: record.KindErase, Seq: -1})})
	kafkatest.Produce(t, b.cfg, records...)
}

// What was erased while a rebuild went on is erased when its tables become the live ones, before it has read skein.runs once more: also of
// what the indexer erased between two exchanges.
func TestMigrate_RebuildBringsNothingErasedBack(t *testing.T) {
	b := newRebuildBed(t)
	kafkatest.Produce(t, b.cfg, runRecords(t, b.cfg, 0, 40)...)
	awaitValue(t, b.conn, "SELECT toString(count()) FROM v_runs", "66")
	awaitValue(t, b.conn, "SELECT toString(count()) FROM positions FINAL", "4")
	erased := func(i int) {
		b.erase(t, i)
		awaitValue(t, b.conn, fmt.Sprintf("SELECT toString(count()) FROM erasures WHERE thread_id = 'thread-%04d'", i), "1")
	}
	var beforeAny, between, looked sync.Once
	seen := 0
	addr := clickhousetest.Door(t, b.server.Addr, func(s clickhousetest.Statement) error {
		switch {
		case s.Is("CREATE DATABASE IF NOT EXISTS `%s` ", b.server.Database): // the first statement of the exchange
			beforeAny.Do(func() { erased(1) })
		case s.Is("EXCHANGE TABLES `%s`.`runs` ", b.server.Database):
			between.Do(func() {
				erased(2)
				kafkatest.Produce(t, b.cfg, runRecords(t, b.cfg, 1000, 1)...) // the last reading writes its messages
			})
		case s.Is("INSERT INTO messages") && s.Database == b.server.Database:
			looked.Do(func() {
				seen++
				for _, view := range []string{"v_runs", "v_runs_by_time", "v_messages", "v_branches"} {
					if n := valueOf(t, b.conn, "SELECT toString(count()) FROM "+view+" WHERE tenant = 'acme' AND thread_id IN ('thread-0001', 'thread-0002')"); n != "0" {
						t.Errorf("%s rows of erased threads are in %s", n, view)
					}
				}
				if n := valueOf(t, b.conn, "SELECT toString(count()) FROM erasures FINAL"); n != "2" {
					t.Errorf("%s erasures, want 2", n)
				}
			})
		}
		return nil
	})
	stdout, stderr, code := b.rebuild(t.Context(), addr)
	if code != app.ExitDone || stderr != "" {
		t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if seen != 1 {
		t.Fatal("the test has not looked")
	}
	awaitValue(t, b.conn, "SELECT toString(count()) FROM v_runs", "64")
}

// A signal, and answers that are lost, do not leave the tables of two databases mixed.
func TestMigrate_RebuildEndsAnExchangeThatItBegan(t *testing.T) {
	b := newRebuildBed(t)
	kafkatest.Produce(t, b.cfg, runRecords(t, b.cfg, 0, 40)...)
	awaitValue(t, b.conn, "SELECT toString(count()) FROM v_messages", "52")
	awaitValue(t, b.conn, "SELECT toString(count()) FROM positions FINAL", "4")
	if err := b.conn.Exec(t.Context(), "TRUNCATE TABLE messages"); err != nil { // the new table is known by having them
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var order []string
	var mu sync.Mutex
	lost := map[string]bool{}
	addr := clickhousetest.Door(t, b.server.Addr, func(s clickhousetest.Statement) error {
		moves := s.Is("EXCHANGE TABLES ") || s.Is("RENAME TABLE ")
		if !moves && !s.Is("DROP VIEW ") && !s.Is("DROP DATABASE ") {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if s.Is("DROP DATABASE ") {
			if s.Settings.Get("max_table_size_to_drop") != "0" || s.Settings.Get("max_partition_size_to_drop") != "0" {
				t.Errorf("large tables are not dropped: %v", s.Settings)
			}
			return nil
		}
		cancel()
		if lost[s.Text] {
			return nil
		}
		lost[s.Text] = true
		if s.Is("EXCHANGE TABLES ") {
			order = append(order, strings.Split(s.Text, "`")[3])
		}
		return clickhousetest.ErrLost
	})
	stdout, stderr, code := b.rebuild(ctx, addr)
	if code != app.ExitDone || !strings.HasPrefix(stdout, "rebuilt from ") ||
		stderr != "exchanging tables: it ends when the live ones are complete\n" {
		t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if len(order) < 5 || order[0] != "positions" {
		t.Errorf("tables are exchanged in the order %v; the positions must not be ahead of the runs", order)
	}
	for query, want := range map[string]string{
		"SELECT toString(count()) FROM v_messages":                                                    "52",
		"SELECT toString(count()) FROM v_runs":                                                        "66",
		"SELECT toString(count()) FROM v_runs_by_time":                                                "66",
		"SELECT toString(count()) FROM positions FINAL":                                               "4",
		"SELECT toString(count()) FROM system.databases WHERE name = currentDatabase() || '_rebuild'": "0",
	} {
		awaitValue(t, b.conn, query, want)
	}
	if err := b.store.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// Rows in a database that nothing erases from, expires or sweeps do not stay there.
func TestMigrate_RebuildThatFailsLeavesNoRows(t *testing.T) {
	b := newRebuildBed(t)
	kafkatest.Produce(t, b.cfg, runRecords(t, b.cfg, 0, 40)...)
	awaitValue(t, b.conn, "SELECT toString(count()) FROM v_runs", "66")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	addr := clickhousetest.Door(t, b.server.Addr, func(s clickhousetest.Statement) error {
		if s.Is("INSERT INTO positions") && s.Database == b.server.Database+"_rebuild" {
			cancel()
		}
		return nil
	})
	if stdout, _, code := b.rebuild(ctx, addr); code == app.ExitDone || stdout != "" {
		t.Errorf("exit %d, stdout %q", code, stdout)
	}
	if n := valueOf(t, b.conn, "SELECT toString(count()) FROM system.databases WHERE name = currentDatabase() || '_rebuild'"); n != "0" {
		t.Error("the database stays")
	}
	if n := valueOf(t, b.conn, "SELECT toString(count()) FROM v_runs"); n != "66" {
		t.Errorf("%s live runs, want 66", n)
	}
}

// An exchange that cannot end says what is wrong with the live tables and what to do, and stages are not ready. The same command mends it.
func TestMigrate_RebuildSaysWhatAnExchangeLeaves(t *testing.T) {
	b := newRebuildBed(t)
	kafkatest.Produce(t, b.cfg, runRecords(t, b.cfg, 0, 40)...)
	awaitValue(t, b.conn, "SELECT toString(count()) FROM v_runs", "66")
	addr := clickhousetest.Door(t, b.server.Addr, func(s clickhousetest.Statement) error {
		if s.Is("EXCHANGE TABLES `%s`.`runs` ", b.server.Database) {
			return errors.New("Not enough privileges")
		}
		return nil
	})
	stdout, stderr, code := b.rebuild(t.Context(), addr)
	if code == app.ExitDone || stdout != "" || !strings.Contains(stderr, "THE LIVE TABLES ARE INCOMPLETE") ||
		!strings.Contains(stderr, b.server.Database+"_rebuild") || !strings.Contains(stderr, "Run the same command again") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if err := b.store.Ping(t.Context()); err == nil {
		t.Error("the stages are ready with views and tables that are missing")
	}
	if stdout, stderr, code := b.rebuild(t.Context(), b.server.Addr); code != app.ExitDone {
		t.Errorf("again: exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	awaitValue(t, b.conn, "SELECT toString(count()) FROM v_runs_by_time", "66")
	awaitValue(t, b.conn, "SELECT toString(count()) FROM v_runs", "66")
}
