package tenants

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
	"github.com/skeinhq/skein/test/site"
)

// With --require-ingest, a producer that may write to skein.events changes nothing of anybody: neither by records of its own, nor by what
// it has copied from other tenants. Nothing of it is seen live or afterwards, and a verifier without the keys still proves the runs.
func TestTenants_APlainProducerWritesForNobody(t *testing.T) {
	k, st := fakeEnds(t)
	unkeyed := k
	path := filepath.Join(t.TempDir(), "ingest-keys")
	if err := os.WriteFile(path, []byte(strings.Repeat("0123456789abcdef", 4)), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if k.IngestKeys, err = kafka.OpenIngestKeys(path, slog.New(slog.DiscardHandler), prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	s := startSite(t, k, st)
	s.publish("acme", "t1", "r1", secretOfAcme, false)
	s.publish("umbrella", "t1", "r1", "forged", false)

	key, err := record.ThreadKey("acme", "t1")
	if err != nil {
		t.Fatal(err)
	}
	partition := record.Partition([]byte(key), partitions)
	var forged []*kgo.Record
	send := func(kind record.Kind, run, value string) {
		forged = append(forged, &kgo.Record{
			Topic: k.Topics().Events, Partition: partition, Key: []byte(key), Value: []byte(value),
			Headers: kafka.Headers(record.Headers{Kind: kind, RunID: run, Seq: -1}),
		})
	}
	send(record.KindEvent, "r1", `{"type":"CUSTOM","name":"forged","value":1}`)
	send(record.KindEvent, "", `{"type":"CUSTOM","name":"forged","value":1}`)
	send(record.KindEvent, "r1", `{"type":"RUN_FINISHED","threadId":"t1","runId":"r1"}`)
	send(record.KindEvent, "forged", `{"type":"RUN_STARTED","threadId":"t1","runId":"forged"}`)
	send(record.KindInput, "forged-2", input("forged"))
	send(record.KindCancel, "r1", `{"reason":"forged"}`)
	send(record.KindThread, "", `{"title":"forged"}`)
	send(record.KindErase, "", `{}`)
	for _, m := range forged[:8:8] { // as a newer Skein would write them, at which stages stop
		h, err := kafka.ParseHeaders(m.Headers)
		if err != nil {
			t.Fatal(err)
		}
		h.Version = record.Version + 1
		forged = append(forged, &kgo.Record{Topic: m.Topic, Partition: partition, Key: m.Key, Value: m.Value, Headers: kafka.Headers(h)})
	}
	for _, m := range kafkatest.Consume(t, unkeyed, k.Topics().Events) {
		if strings.HasPrefix(string(m.Key), "umbrella/") { // signed, for another key
			forged = append(forged, &kgo.Record{Topic: m.Topic, Partition: partition, Key: []byte(key), Value: m.Value, Headers: m.Headers})
		}
	}
	if len(forged) < 20 {
		t.Fatalf("umbrella has %d records", len(forged)-16)
	}
	kafkatest.Produce(t, unkeyed, forged...)

	api := s.stages[1]
	get := func(st stage, path string) reply {
		t.Helper()
		got := s.send(http.MethodGet, st.url+path, s.as("acme"), nil)
		if strings.Contains(got.body, "forged") {
			t.Errorf("%s shows what is forged: %s", path, got)
		}
		return got
	}
	live := get(api, "/v1/threads/t1/runs/r1/stream")
	if !strings.Contains(live.body, secretOfAcme) || strings.Contains(live.body, "stop requested") {
		t.Errorf("the live stream is %s", live)
	}
	s.finish("acme", "t1", "r1")
	for _, path := range []string{"/v1/threads/t1", "/v1/threads/t1/lineage", "/v1/threads/t1/runs/r1/history",
		"/v1/threads/t1/runs/r1/events"} {
		if got := get(api, path); got.status != http.StatusOK {
			t.Errorf("%s is answered %s", path, got)
		}
	}
	letters := kafkatest.ConsumeUntil(t, unkeyed, k.Topics().DeadLetters, func(all []*kgo.Record) bool { return len(all) >= len(forged) })
	reasons := map[string]int{}
	for _, m := range letters {
		reasons[deadletter.Read(m).Reason]++
	}
	if want := map[string]int{deadletter.NotFromIngest: len(forged)}; !maps.Equal(reasons, want) {
		t.Errorf("dead letters are %v, want %v", reasons, want)
	}

	// Another query stage reads the same without the keys.
	auth := tenant.OpenKeyFile(s.keys, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	without := httptest.NewServer(site.Query(t, unkeyed, st, auth, func(*query.Config) {}).Handler())
	t.Cleanup(without.Close)
	for _, st := range []stage{api, {"query without keys", without.URL, []front.Route{}}} {
		site.Eventually(t, st.name+" proves the run", func() (string, bool) {
			got := get(st, "/v1/threads/t1/runs/r1/verify") // of an open run until the index has its end
			return got.String(), strings.Contains(got.body, `"verdict":"proved"`) && strings.Contains(got.body, `"status":"finished"`)
		})
		if lines := slices.Collect(strings.Lines(get(st, "/v1/threads/t1/events").body)); len(lines) != 6 {
			t.Errorf("%s replays %d events", st.name, len(lines))
		}
	}
	// What reads all that is on the topic does not stop at them.
	for _, path := range []string{"/v1/threads/t1/events?all=true", "/v1/verify"} {
		if all := s.send(http.MethodGet, api.url+path, s.as("acme"), nil); all.status != http.StatusOK || strings.Contains(all.body, "error") {
			t.Errorf("%s is answered %s", path, all)
		}
	}
}

// finish ends a run through ingest.
func (s *tenants) finish(who, thread, run string) {
	s.t.Helper()
	header := s.as(who)
	header.Set("Content-Type", "application/x-ndjson")
	path := s.stages[0].url + "/v1/threads/" + thread + "/runs/" + run + "/events"
	end := fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run)
	if r := s.send(http.MethodPost, path, header, strings.NewReader(end)); r.status != http.StatusOK {
		s.t.Fatalf("publishing: %s", r)
	}
}
