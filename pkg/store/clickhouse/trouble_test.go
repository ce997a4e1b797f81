package clickhouse

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

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

// The server has taken the rows, and its answer does not arrive: the rows are there, and are written again.
func TestWrite_AgainWhereTheAnswerWasLost(t *testing.T) {
	o := optionsFor(t)
	if !strings.HasPrefix(o.Addrs[0], "http://") {
		t.Skip("answers are held back over HTTP only")
	}
	target, err := url.Parse(o.Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	var holds atomic.Bool
	var taken atomic.Int32
	proxy := httputil.NewSingleHostReverseProxy(target)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !holds.Load() || !strings.HasPrefix(r.URL.Query().Get("query"), "INSERT") {
			proxy.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, r)
		if answer.Code == http.StatusOK {
			taken.Add(1)
		}
		panic(http.ErrAbortHandler) // cuts the connection
	}))
	t.Cleanup(srv.Close)
	o.Addrs = []string{srv.URL}
	s := connect(t, o)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	entries := []store.Entry{withMessages(sealedEntry(1), record.StatusFinished, 3)}
	holds.Store(true)
	for range 2 {
		if err := s.Write(t.Context(), entries); !errors.Is(err, ErrUnavailable) || errors.Is(err, store.ErrRefused) {
			t.Errorf("error %v, want %v", err, ErrUnavailable)
		}
	}
	if taken.Load() == 0 {
		t.Fatal("the server has taken no insert")
	}
	holds.Store(false)
	for range 2 { // and once more, as an indexer does that was killed before it committed
		if err := s.Write(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
	}
	c, err := s.Contents(t.Context(), "t", "th", []string{"r"})
	if err != nil || len(c["r"].Messages) != 3 {
		t.Errorf("%d messages, %v; want 3", len(c["r"].Messages), err)
	}
	for table, want := range map[string]uint64{"messages": 3, "states": 1, "runs": 1} {
		var n uint64
		if err := s.conn.QueryRow(t.Context(), "SELECT count() FROM "+table+" FINAL").Scan(&n); err != nil || n != want {
			t.Errorf("%s has %d rows, %v; want %d", table, n, err, want)
		}
	}
}
