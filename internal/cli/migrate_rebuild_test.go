package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/indexer"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store/clickhouse"
)

// runRecords are records of skein.runs for threads from number first on: of each thread a run that was running and is sealed, one that is
// open, and for every third thread a tombstone behind that.
func runRecords(t *testing.T, cfg kafka.Config, first, threads int) (records []*kgo.Record) {
	t.Helper()
	for i := first; i < first+threads; i++ {
		thread := fmt.Sprintf("thread-%04d", i)
		add := func(run string, r *record.Run) {
			key, err := record.RunKey("acme", thread, run)
			if err != nil {
				t.Fatal(err)
			}
			m := &kgo.Record{Topic: cfg.Topics().Runs, Partition: int32(i % 4), Key: []byte(key),
				Headers: kafka.Headers(record.Headers{Kind: record.KindRun, Seq: -1})}
			if r != nil {
				r.Tenant, r.ThreadID, r.RunID, r.BranchID, r.RootRunID, r.ParentBy = "acme", thread, run, "one", "one", record.ParentNone
				r.StartedAt = time.Date(2026, 9, 1, 0, i, 0, 0, time.UTC)
				r.Raw = record.Raw{Partition: m.Partition, First: int64(i) * 10, Next: int64(i)*10 + 4, Events: 4,
					Ranges: [][2]int64{{int64(i) * 10, int64(i)*10 + 4}}}
				if m.Value, err = record.EncodeRun(r); err != nil {
					t.Fatal(err)
				}
			}
			records = append(records, m)
		}
		add("one", &record.Run{Status: record.StatusRunning})
		end := time.Date(2026, 9, 1, 0, i, 9, 0, time.UTC)
		add("one", &record.Run{
			Status: record.StatusFinished, EndedAt: &end, Agent: "shop", Labels: map[string]string{"team": "a", "user": "u"}, State: json.RawMessage(`{"n":1}`),
			InputMessages: []agui.Message{{ID: "q", Role: agui.RoleUser, Raw: json.RawMessage(`{"id":"q","role":"user","content":"Where is my order?"}`)}},
			Messages: []agui.Message{{ID: "a", Role: agui.RoleAssistant, Raw: json.RawMessage(
				`{"id":"a","role":"assistant","content":"On its way","toolCalls":[{"id":"c","type":"function","function":{"name":"find","arguments":"{}"}}]}`)}},
			Interrupts: []json.RawMessage{json.RawMessage(`{"id":"i","reason":"approval"}`)}, Resumes: []json.RawMessage{json.RawMessage(`{"interruptId":"h","status":"resolved"}`)},
		})
		add("two", &record.Run{Status: record.StatusRunning})
		if i%3 == 0 {
			add("one", nil)
		}
	}
	return records
}

// rebuildBed is an indexer that brings records from Kafka into ClickHouse.
type rebuildBed struct {
	cfg    kafka.Config
	server clickhousetest.Server
	store  *clickhouse.Store
	conn   driver.Conn
	flags  []string // for skein migrate
}

func newRebuildBed(t *testing.T) *rebuildBed {
	t.Helper()
	b := &rebuildBed{server: clickhousetest.Start(t), cfg: kafkatest.Start(t, 4)}
	b.flags = []string{"--brokers", strings.Join(b.cfg.Brokers, ","), "--topic-prefix", b.cfg.TopicPrefix, "--clickhouse-database",
		b.server.Database, "--clickhouse-user", b.server.Username}
	if b.server.Password != "" {
		b.flags = append(b.flags, "--clickhouse-password-file", writeFile(t, "password", b.server.Password))
	}
	var err error
	b.store, err = clickhouse.New(clickhouse.Options{Addrs: []string{b.server.Addr}, Database: b.server.Database, Username: b.server.Username,
		Password: b.server.Password})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	index := indexer.DefaultConfig(b.cfg)
	index.MaxDelay, index.Logger, index.Registerer = 50*time.Millisecond, slog.New(slog.NewTextHandler(t.Output(), nil)),
		prometheus.NewRegistry()
	service, err := indexer.New(index, b.store)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	b.conn = b.server.Open(t)
	return b
}

// rebuild runs the command, with ClickHouse at an address.
func (b *rebuildBed) rebuild(ctx context.Context, addr string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	err := run(ctx, append([]string{"migrate", "--rebuild", "--clickhouse", addr}, b.flags...), nil, strings.NewReader(""), &out, &errs)
	app.Report(&errs, "skein", err)
	return out.String(), errs.String(), app.ExitCode(err)
}

// hashes are the rows of tables, once the server has carried out all deletions.
func (b *rebuildBed) hashes(t *testing.T, tables []string) map[string]string {
	t.Helper()
	awaitValue(t, b.conn, "SELECT toString(count()) FROM system.mutations WHERE database = currentDatabase() AND NOT is_done", "0")
	all := map[string]string{}
	for _, table := range tables {
		all[table] = valueOf(t, b.conn, "SELECT toString(count()) || ' ' || toString(groupBitXor(sipHash64(formatRow('TSV', *)))) FROM "+table+" FINAL")
	}
	return all
}

// A rebuild gives the same rows as an indexer has written, while an indexer goes on; what that writes meanwhile is there as well.
func TestMigrate_RebuildsBesideTheLiveTables(t *testing.T) {
	b := newRebuildBed(t)
	cfg, conn := b.cfg, b.conn
	kafkatest.Produce(t, cfg, runRecords(t, cfg, 0, 120)...)
	sealed := "SELECT toString(countIf(status = 'finished')) || ' of ' || toString(count()) FROM v_runs"
	awaitValue(t, conn, sealed, "80 of 200")
	awaitValue(t, conn, "SELECT toString(count()) FROM positions FINAL", "4")      // they come after all else
	awaitValue(t, conn, "SELECT toString(count()) FROM runs_by_time FINAL", "200") // but for deletions of rows by an earlier time
	tables := []string{"runs", "runs_by_time", "messages", "states", "tool_calls", "interrupts", "answers", "positions"}
	before := b.hashes(t, tables)
	if err := conn.Exec(t.Context(), "INSERT INTO prices (model, input_per_million) VALUES ('large', 3)"); err != nil {
		t.Fatal(err)
	}
	rebuild := func(t *testing.T) {
		t.Helper()
		stdout, stderr, code := b.rebuild(t.Context(), b.server.Addr)
		if code != app.ExitDone || !strings.HasPrefix(stdout, "rebuilt from ") || stderr != "" {
			t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
		}
	}
	rebuild(t)
	for table, got := range b.hashes(t, tables) {
		if got != before[table] {
			t.Errorf("%s: rows and hash %s, before %s", table, got, before[table])
		}
	}
	for query, want := range map[string]string{
		"SELECT toString(input_per_million) FROM prices":                                              "3",
		"SELECT toString(count()) FROM v_runs_by_time":                                                "200",
		"SELECT toString(count()) FROM system.databases WHERE name = currentDatabase() || '_rebuild'": "0",
	} {
		if got := valueOf(t, conn, query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}

	t.Run("while an indexer writes", func(t *testing.T) {
		more := runRecords(t, cfg, 120, 120)
		written := make(chan struct{})
		go func() {
			defer close(written)
			for len(more) > 0 {
				n := min(len(more), 20)
				kafkatest.Produce(t, cfg, more[:n]...)
				more = more[n:]
			}
		}()
		rebuild(t)
		<-written
		awaitValue(t, conn, sealed, "160 of 400")
		awaitValue(t, conn, "SELECT toString(count()) FROM v_runs_by_time", "400")
		const columns = "run_id, thread_id, status, agent, labels, started_at, version"
		for _, views := range [][2]string{{"v_runs", "v_runs_by_time"}, {"v_runs_by_time", "v_runs"}} {
			if n := valueOf(t, conn, "SELECT toString(count()) FROM (SELECT "+columns+" FROM "+views[0]+" EXCEPT SELECT "+columns+" FROM "+views[1]+
				")"); n != "0" {
				t.Errorf("%s runs are not in %s as %s has them", n, views[1], views[0])
			}
		}
		if n := valueOf(t, conn, "SELECT toString(count()) FROM v_messages"); n != "320" {
			t.Errorf("%s messages, want 320", n)
		}
	})
	t.Run("not of SQLite", func(t *testing.T) {
		stdout, stderr, code := skein(t, "", "migrate", "--rebuild", "--brokers", cfg.Brokers[0], "--sqlite",
			filepath.Join(t.TempDir(), "lineage.sqlite"))
		if code != app.ExitUsage || stdout != "" || !strings.Contains(stderr, "delete the file") {
			t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
		}
	})
}

func valueOf(t *testing.T, conn driver.Conn, query string) (v string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// awaitValue asks until a query gives a value.
func awaitValue(t *testing.T, conn driver.Conn, query, want string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(kafkatest.Timeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got = valueOf(t, conn, query); got == want {
			return
		}
	}
	t.Fatalf("%s: %s, want %s", query, got, want)
}
