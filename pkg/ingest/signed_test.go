package ingest

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

func ingestKeys(tb testing.TB) *kafka.IngestKeys {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		tb.Fatal(err)
	}
	keys, err := kafka.OpenIngestKeys(path, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

// Every record that ingest writes is signed, whatever call it comes from, and carries one signature.
func TestIngest_SignsEveryRecord(t *testing.T) {
	cfg := proxyConfig(t)
	cfg.Kafka.IngestKeys = ingestKeys(t)
	stream := "data: " + begin + "\n\ndata: " + said + "\n\n" // and no end, which the proxy makes
	b := startBehind(t, cfg, func(a *agents.Agent) { a.Labels = map[string]string{"user": "/forwardedProps/userId"} }, answers(stream))
	b.stream(inputOf("r1"))
	b.published(4)
	for name, a := range map[string]answer{
		"a numbered event": b.do(http.MethodPost, b.path("events"), strings.NewReader(`{"seq":7,"event":`+said+`}`), "Content-Type", typeSequenced, "Skein-Agent", "shop"),
		"an event":         b.do(http.MethodPost, b.path("events"), strings.NewReader(said), "Content-Type", typeNDJSON, "Skein-Label-A", "b"),
		"an input":         b.do(http.MethodPut, b.path("input"), strings.NewReader(inputOf("r1")), "Content-Type", typeJSON),
		"a patch":          b.do(http.MethodPatch, "/v1/threads/t1", strings.NewReader(`{"title":"x"}`), "Content-Type", typeJSON),
		"an erasure":       b.do(http.MethodDelete, "/v1/threads/t1", nil),
	} {
		if a.status >= 300 {
			t.Fatalf("%s is answered %d %s", name, a.status, a.body)
		}
	}
	kinds := map[record.Kind]int{}
	for _, r := range b.records() {
		signatures := 0
		for _, h := range r.Headers {
			if h.Key == record.HeaderMAC {
				signatures++
			}
		}
		if kinds[headersOf(t, r).Kind]++; signatures != 1 || cfg.Kafka.IngestKeys.Refuses(r) {
			t.Errorf("%s %v has %d signatures", r.Value, r.Headers, signatures)
		}
	}
	for kind, want := range map[record.Kind]int{record.KindEvent: 5, record.KindInput: 2, record.KindThread: 1, record.KindErase: 1} {
		if kinds[kind] != want {
			t.Errorf("there are %d records of kind %s, want %d", kinds[kind], kind, want)
		}
	}
}

// A request to stop a run that ingest has not signed stops nothing; the one behind it does.
func TestCancel_OnlySignedRequestsStopRuns(t *testing.T) {
	cfg := proxyConfig(t)
	cfg.Kafka.IngestKeys = ingestKeys(t)
	b := proxies(t, cfg, 1)[0]
	rest := b.begins("r1")
	b.begins("r2")
	if a, _ := b.cancel("r2", "{}", "Content-Type", typeJSON); a.status != http.StatusOK { // so requests are read by now
		t.Fatalf("answer is %d %s", a.status, a.body)
	}
	first := b.records()[0]
	for _, version := range []int{record.Version, record.Version + 1} { // at records of a newer Skein, readers stop
		kafkatest.Produce(t, b.cfg, &kgo.Record{
			Topic: first.Topic, Partition: first.Partition, Key: first.Key, Value: []byte(`{"reason":"forged"}`),
			Headers: kafka.Headers(record.Headers{Version: version, Kind: record.KindCancel, RunID: "r1", Seq: -1}),
		})
	}
	if a, c := b.cancel("r1", `{"reason":"enough"}`, "Content-Type", typeJSON); a.status != http.StatusOK || c.Status != record.StatusCancelled {
		t.Fatalf("answer is %d %s", a.status, a.body)
	}
	text, err := io.ReadAll(rest)
	if err != nil || !strings.Contains(string(text), `"reason":"enough"`) || strings.Contains(string(text), "forged") {
		t.Errorf("the run ends with %s, %v", text, err)
	}
}
