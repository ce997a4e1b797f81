package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

func sealedEntry(version int64) store.Entry {
	return store.Entry{Partition: 3, Version: version, Tenant: "t", ThreadID: "th", RunID: "r", Run: &record.Run{
		Status: record.StatusFinished, Lineage: record.Lineage{ParentBy: record.ParentNone}, Raw: record.Raw{Partition: 3, Next: 10 + version},
	}}
}

// The same Store goes on when the server comes back.
func TestStore_GoesOnAfterTheServerWasAway(t *testing.T) {
	o := optionsFor(t)
	g := clickhousetest.NewGate(t, o.Addrs[0])
	o.Addrs = []string{g.Addr}
	s := connect(t, o)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), []store.Entry{sealedEntry(1)}); err != nil {
		t.Fatal(err)
	}
	g.Close()
	if err := s.Ping(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Ping: %v, want ErrUnavailable", err)
	}
	if err := s.Write(t.Context(), []store.Entry{sealedEntry(2)}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Write: %v, want ErrUnavailable", err)
	}
	if _, err := s.Thread(t.Context(), "t", "th"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Thread: %v, want ErrUnavailable", err)
	}
	g.Open()
	// A pooled connection may be one that was cut: it is found out and dropped by a call.
	deadline := time.Now().Add(30 * time.Second)
	for s.Ping(t.Context()) != nil && time.Now().Before(deadline) {
	}
	if err := s.Write(t.Context(), []store.Entry{sealedEntry(2)}); err != nil {
		t.Errorf("Write after the server came back: %v", err)
	}
	if r, err := s.Run(t.Context(), "t", "th", "r"); err != nil || r.Version != 2 {
		t.Errorf("version %d, %v; want 2", r.Version, err)
	}
}

// A server that takes the question and never answers must not hold a caller for ever.
func TestStore_GivesUpOnAServerThatHangs(t *testing.T) {
	t.Parallel() // it waits for most of its time
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for _, scheme := range []string{"http://", "clickhouse://"} {
		s := connect(t, Options{Addrs: []string{scheme + l.Addr().String()}})
		s.queryTimeout = 10 * time.Millisecond
		start := time.Now()
		if err := s.Ping(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", scheme, err)
		}
		if d := time.Since(start); d > 6*dialTimeout {
			t.Errorf("%s: gave up after %v", scheme, d)
		}
	}
	err = connect(t, Options{Addrs: []string{"http://" + l.Addr().String()}}).Ping(t.Context())
	if want := l.Addr().String() + ": no connection was free, or a new one not answered, within 5s"; !errors.Is(err, ErrUnavailable) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("it says %v, want ... %s", err, want)
	}
}

// What the server does not end by itself, the client does 2 s later. A call of a reader begins no statement behind
// one that has failed.
func TestStore_BoundsEachStatement(t *testing.T) {
	s := connect(t, Options{Addrs: []string{"clickhouse://127.0.0.1:1"}})
	for _, c := range []struct {
		name  string
		begin func(*Store) (context.Context, context.CancelFunc)
		limit time.Duration
	}{
		{"a read", func(s *Store) (context.Context, context.CancelFunc) {
			return s.reading(t.Context(), s.queryTimeout, nil)
		}, 32 * time.Second},
		{"a write", func(s *Store) (context.Context, context.CancelFunc) { return s.writing(t.Context(), nil) }, 122 * time.Second},
	} {
		earliest := time.Now().Add(c.limit)
		ctx, cancel := c.begin(s)
		defer cancel()
		end, ok := ctx.Deadline()
		if !ok || end.Before(earliest) || end.After(time.Now().Add(c.limit)) {
			t.Errorf("%s ends at %v, want %v from now", c.name, end, c.limit)
		}
	}
}

func TestStore_TellsWhatTheServerSays(t *testing.T) {
	for _, c := range []struct {
		name, code, text string
		want             error
	}{
		{"a wrong password", "516", "default: Authentication failed. (AUTHENTICATION_FAILED)", ErrDenied},
		{"a missing grant", "497", "Not enough privileges. (ACCESS_DENIED)", ErrDenied},
		{"too many parts", "252", "Too many parts. (TOO_MANY_PARTS)", ErrUnavailable},
		{"no memory", "241", "Memory limit exceeded. (MEMORY_LIMIT_EXCEEDED)", ErrUnavailable},
		{"a missing database", "81", "Database skein does not exist. (UNKNOWN_DATABASE)", ErrSchemaOld},
		{"a missing column", "16", "No such column. (NO_SUCH_COLUMN_IN_TABLE)", ErrSchemaOld},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-ClickHouse-Exception-Code", c.code)
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, "Code: "+c.code+". DB::Exception: "+c.text+"\n")
			}))
			t.Cleanup(srv.Close)
			s := connect(t, Options{Addrs: []string{srv.URL}, Username: "u", Password: "secret"})
			err := s.Ping(t.Context())
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
}

// What is wrong is one short line over either protocol: no URL of the statement, the address once.
func TestStore_TellsWhoDoesNotAnswer(t *testing.T) {
	cut := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(cut.Close)
	const begins = "asking ClickHouse for its schema: ClickHouse does not answer: "
	for addr, want := range map[string]string{
		"http://127.0.0.1:1":       "dial tcp 127.0.0.1:1: connect: connection refused",
		"clickhouse://127.0.0.1:1": "dial tcp 127.0.0.1:1: connect: connection refused",
		cut.URL:                    strings.TrimPrefix(cut.URL, "http://") + ": EOF",
	} {
		err := connect(t, Options{Addrs: []string{addr}}).Ping(t.Context())
		if !errors.Is(err, ErrUnavailable) || err.Error() != begins+want {
			t.Errorf("%s: %v, want %s", addr, err, begins+want)
		}
	}
}

func TestStore_KeepsACancelledCallApartFromWeather(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := connect(t, Options{Addrs: []string{"clickhouse://127.0.0.1:1"}})
	if err := s.Ping(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
		t.Errorf("error %v, want context.Canceled alone", err)
	}
}

// The server is killed while blocks are written, and comes back with what it had: nothing that was written is lost, and nothing is there
// twice.
func TestStore_LosesNothingWhereTheServerIsKilled(t *testing.T) {
	r := clickhousetest.StartRestartable(t)
	s := connect(t, Options{Addrs: []string{r.Addr}, Database: r.Database, Username: r.Username})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	const blocks, of, kills = 12, 50, 1
	written, failed := make(chan int), 0
	go func() {
		defer close(written)
		for b := range blocks {
			var entries []store.Entry
			for i := range of {
				e := told(int64(b*of+i), fmt.Sprintf("thread-%03d", b), fmt.Sprint("run-", i))
				e.Run.Raw.First = int64(b*of + i)
				entries = append(entries, e)
			}
			for s.Write(t.Context(), entries) != nil && t.Context().Err() == nil {
				failed++
			}
			written <- b
		}
	}()
	for b := range written {
		if b%(blocks/(kills+1)) == 1 && b < blocks-2 {
			r.Kill() // in the middle of the next block
			r.Start()
		}
	}
	if failed == 0 {
		t.Error("no write has failed: the test shows nothing")
	}
	for query, want := range map[string]int{
		"SELECT toString(count()) FROM v_runs":          blocks * of,
		"SELECT toString(count()) FROM v_runs_by_time":  blocks * of,
		"SELECT toString(count()) FROM v_messages":      2 * blocks * of,
		"SELECT toString(count()) FROM v_tool_calls":    blocks * of,
		"SELECT toString(count()) FROM states FINAL":    blocks * of,
		"SELECT toString(max(raw_next)) FROM positions": 10 + blocks*of - 1,
	} {
		if got := text(t, s, query); got != fmt.Sprint(want) {
			t.Errorf("%s: %s, want %d", query, got, want)
		}
	}
}
