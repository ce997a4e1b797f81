package docs

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/internal/demo"
	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/test/site"
)

const (
	answersFrom = "<!-- Made by go test ./test/docs -run Questions -update; the rows of the demo's conversations. -->\n"
	answersTo   = "<!-- End of what was made. -->\n"
)

// The rows that docs/questions/README.md shows for each question are those of the demo's conversations.
func TestQuestions_GiveTheRowsThatAreShown(t *testing.T) {
	server := clickhousetest.Start(t)
	if !strings.HasPrefix(server.Addr, "http://") {
		t.Skip("asks over HTTP")
	}
	s := site.ClickHouse(t, server)
	if err := s.Write(t.Context(), demoRuns(t)); err != nil {
		t.Fatal(err)
	}
	for _, price := range []string{"('large', 3, 15)", "('small', 0.5, 2)"} { // those that the text names
		ask(t, server, url.Values{"database": {server.Database}}, "INSERT INTO prices (model, input_per_million, output_per_million) VALUES "+price)
	}
	files, err := filepath.Glob("../../docs/questions/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d questions, %v", len(files), err)
	}
	slices.Sort(files)
	const doc, list = "../../docs/questions/README.md", "../../docs/sql.md"
	have, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var says []string // the comment that it begins with
		for line := range strings.Lines(string(text)) {
			comment, ok := strings.CutPrefix(line, "-- ")
			if !ok {
				break
			}
			says = append(says, strings.TrimSpace(comment))
		}
		name := filepath.Base(file)
		if row := fmt.Sprintf("| [`%s`](questions/%s) | %s |\n", name, name, strings.Join(says, " ")); !strings.Contains(string(listed), row) {
			t.Errorf("%s lacks the row\n%s", list, row)
		}
		q := url.Values{"database": {server.Database}, "param_tenant": {"default"}, "param_from": {"1970-01-01 00:00:00"},
			"param_to": {"2100-01-01 00:00:00"}, "default_format": {"Markdown"}}
		fmt.Fprintf(&b, "\n`%s`:\n\n%s", name, ask(t, server, q, string(text)))
	}
	b.WriteString("\n")
	head, rest, ok := strings.Cut(string(have), answersFrom)
	shown, tail, closed := strings.Cut(rest, answersTo)
	switch {
	case !ok || !closed:
		t.Fatalf("%s has no lines %q and %q", doc, answersFrom, answersTo)
	case *update:
		if err := os.WriteFile(doc, []byte(head+answersFrom+b.String()+answersTo+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	case shown != b.String():
		t.Errorf("%s does not show what the questions give; run go test ./test/docs -run Questions -update. They give\n%s", doc, b.String())
	}
}

func ask(t *testing.T, server clickhousetest.Server, q url.Values, question string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.Addr+"/?"+q.Encode(), strings.NewReader(question))
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	r.SetBasicAuth(server.Username, server.Password)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, body)
	}
	return string(body)
}

// demoRuns are the records of the demo's conversations, by the compactor's own code. Events have timestamps.
func demoRuns(t *testing.T) (entries []store.Entry) {
	t.Helper()
	conversations, err := demo.Conversations(demo.Written)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC) // of Kafka's records
	for _, conv := range conversations {
		var sources []partition.Source
		var labels []record.Label
		for _, key := range slices.Sorted(maps.Keys(conv.Producer.Labels)) {
			labels = append(labels, record.Label{Key: key, Value: conv.Producer.Labels[key]})
		}
		for _, run := range conv.Runs {
			add := func(kind record.Kind, value []byte) {
				sources = append(sources, partition.Source{
					Headers: record.Headers{Version: record.Version, Kind: kind, RunID: run.ID, Seq: -1, Agent: conv.Producer.Agent, Labels: labels},
					Value:   value, At: at,
				})
			}
			add(record.KindInput, run.Input)
			for _, e := range run.Events {
				add(record.KindEvent, e)
			}
		}
		records, refused, err := partition.Offline(partition.DefaultConfig(), "default", conv.ThreadID, sources)
		if err != nil || len(refused) > 0 {
			t.Fatalf("%s: %v refused, %v", conv.ThreadID, refused, err)
		}
		for _, r := range records {
			entries = append(entries, store.Entry{Partition: 0, Version: int64(len(entries)), Tenant: "default", ThreadID: conv.ThreadID,
				RunID: r.RunID, Run: r})
		}
	}
	return entries
}
