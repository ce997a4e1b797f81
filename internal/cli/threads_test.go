package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skeinhq/skein/internal/app"
)

// threadsServer answers GET /v1/threads in two pages, ordered by id.
func threadsServer(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		thread := func(id, updated string) string {
			return fmt.Sprintf(`{"threadId":%q,"runs":1,"branches":1,"messages":2,"startedAt":"2026-01-01T00:00:00Z","updatedAt":%q,"lastRunId":"r","status":"finished"}`, id, updated)
		}
		if since := r.URL.Query().Get("since"); since != "" && since != "2026-01-02T00:00:00Z" {
			t.Errorf("it asks since %s", since)
		}
		page, next := thread("a-order", "2026-01-02T00:00:00Z")+","+thread("b\tmail", "2026-01-04T00:00:00Z"), `,"next":"b\tmail"`
		if r.URL.Query().Get("after") != "" {
			page, next = thread("c-order", "2026-01-03T00:00:00Z"), ""
		}
		page = strings.Replace(page, `"a-order"`, `"a-order","title":"Trip to Oslo"`, 1)
		page = strings.Replace(page, `"c-order"`, `"c-order","archived":true`, 1)
		_, _ = io.WriteString(w, `{"threads":[`+page+`]`+next+`}`) // a test's answer
	}))
	t.Cleanup(s.Close)
	return s
}

func TestThreads_InAPipeAreTabSeparatedNewestFirst(t *testing.T) {
	url := threadsServer(t).URL
	const a, b, c = "a-order\tTrip to Oslo\t2026-01-02T00:00:00Z\tfinished\t1\t1\t2\n",
		"b\uFFFDmail\t\t2026-01-04T00:00:00Z\tfinished\t1\t1\t2\n", "c-order\t\t2026-01-03T00:00:00Z\tfinished (archived)\t1\t1\t2\n"
	for args, want := range map[string]string{
		"":                                  b + c + a,
		"--sort id":                         a + b + c,
		"--limit 2":                         b + c,
		"order":                             c + a,
		"OSLO":                              a,
		"order --sort id --limit 1":         a,
		"-o name":                           "b\uFFFDmail\nc-order\na-order\n",
		"--since 2026-01-02T01:00:00+01:00": b + c + a,
		"nothing":                           "",
	} {
		stdout, stderr, code := skein(t, "", append([]string{"threads", "--url", url}, strings.Fields(args)...)...)
		if code != 0 || stdout != want {
			t.Errorf("threads %s: exit %d, %q %q, want %q", args, code, stdout, stderr, want)
		}
	}
	for args, ids := range map[string]string{
		"--json": "b\\tmail c-order a-order", "--json --sort id --limit 2": "a-order b\\tmail", "-o json": "b\\tmail c-order a-order",
	} {
		stdout, _, code := skein(t, "", append([]string{"threads", "--url", url}, strings.Fields(args)...)...)
		rest, lines := stdout, strings.Count(stdout, "\n")
		for id := range strings.SplitSeq(ids, " ") {
			var found bool
			if _, rest, found = strings.Cut(rest, `"threadId":"`+id+`"`); !found {
				t.Errorf("threads %s: %q has no %s in its place", args, stdout, id)
			}
		}
		if code != 0 || strings.HasPrefix(stdout, "[") != (args == "-o json") || args == "-o json" && lines != 1 ||
			args == "--json" && lines != 3 {
			t.Errorf("threads %s: exit %d, %q", args, code, stdout)
		}
	}
	for _, args := range []string{"--sort newest", "--status done", "-o yaml", "--json -o name", "--since yesterday", "--limit -1"} {
		if _, stderr, code := skein(t, "", append([]string{"threads", "--url", url}, strings.Fields(args)...)...); code != app.ExitUsage {
			t.Errorf("threads %s: exit %d, %s", args, code, stderr)
		}
	}
}

// Ids are whole, columns are straight for wide characters, and the last columns leave where there is no room.
func TestTable_FitsTheScreen(t *testing.T) {
	columns := []column{{name: "THREAD", keep: true}, {name: "STATUS"}, {name: "RUNS", right: true}, {name: "STARTED", wide: true}}
	rows := [][]string{{"order-00000000000000000017", "finished", "2", "x"}, {"注文\x1b", "error", "10", "y"}}
	for width, want := range map[int]string{
		80: "THREAD                      STATUS    RUNS\n" +
			"order-00000000000000000017  finished     2\n" +
			"注文\uFFFD                       error       10\n",
		40: "THREAD                      STATUS\norder-00000000000000000017  finished\n注文\uFFFD                       error\n",
		10: "THREAD\norder-00000000000000000017\n注文\uFFFD\n",
		0:  "order-00000000000000000017\tfinished\t2\n注文\uFFFD\terror\t10\n",
	} {
		if got := table(columns, rows, width, false); got != want {
			t.Errorf("%d columns:\n%s\nwant\n%s", width, got, want)
		}
	}
	if got := table(columns, rows, 10, true); !strings.Contains(got, "STARTED") {
		t.Errorf("the wide table leaves columns out:\n%s", got)
	}
}

func TestAgo_IsShort(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Second: "just now", 59 * time.Second: "just now", 5 * time.Minute: "5 min ago", 47 * time.Hour: "47 h ago",
		72 * time.Hour: "3 days ago", 40 * 24 * time.Hour: "2026-01-29", -time.Hour: "2026-03-10 13:00",
	} {
		if got := ago(now, now.Add(-d)); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// A round that shows the same prints nothing.
func TestWatch_PrintsWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stdout bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		rounds := 0
		err := newOutput(&stdout, io.Discard, nil).watch(ctx, func(_ context.Context, out *output) error {
			rounds++
			if rounds == 5 {
				cancel()
			}
			return out.text([]string{"a\n", "a\n", "b\n", "b\n", "b\n"}[rounds-1])
		})
		if err != nil || stdout.String() != "a\nb\n" || rounds != 5 {
			t.Errorf("%q after %d rounds, %v", stdout.String(), rounds, err)
		}
	})
}

func TestWatch_OutlivesAServerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		rounds := 0
		err := newOutput(&stdout, &stderr, nil).watch(ctx, func(_ context.Context, out *output) error {
			switch rounds++; rounds {
			case 2, 3:
				return errors.New("nobody answers")
			case 4:
				cancel()
				return out.text("b\n")
			}
			return out.text("a\n")
		})
		if err != nil || stdout.String() != "a\nb\n" || stderr.String() != "nobody answers; trying again\n" {
			t.Errorf("%q, %q after %d rounds, %v", stdout.String(), stderr.String(), rounds, err)
		}
	})
	away := errors.New("nobody answers")
	if err := newOutput(io.Discard, io.Discard, nil).watch(t.Context(), func(context.Context, *output) error { return away }); !errors.Is(err,
		away) {
		t.Errorf("the first one fails, and it says %v", err)
	}
}
