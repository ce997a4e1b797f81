package tenants

import (
	"context"
	"errors"
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
	"github.com/skeinhq/skein/pkg/store"
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
		h, err := record.ParseHeaders(m.Headers)
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
	get := func(st stage, path string, after ...string) reply {
		t.Helper()
		header := s.as("acme")
		if len(after) > 0 && after[0] != "" {
			header["Last-Event-Id"] = after
		}
		got := s.send(http.MethodGet, st.url+path, header, nil)
		if strings.Contains(got.body, "forged") {
			t.Errorf("%s of %s shows what is forged: %s", path, st.name, got)
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
	forged = append(forged, s.forgeBelowTheIndex(k, unkeyed, st, get)...)
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

// forgeBelowTheIndex writes forged records among those of a run, more than its record has ranges, and behind its end. Once the index has
// them, it reads what they must not be in.
func (s *tenants) forgeBelowTheIndex(k, unkeyed kafka.Config, st store.Reader,
	get func(stage, string, ...string) reply) (forged []*kgo.Record) {
	s.t.Helper()
	key, err := record.ThreadKey("acme", "t2")
	if err != nil {
		s.t.Fatal(err)
	}
	var all []*kgo.Record
	say := func(by *kafka.IngestKeys, kind record.Kind, run, value string) {
		m := &kgo.Record{
			Topic: k.Topics().Events, Partition: record.Partition([]byte(key), partitions), Key: []byte(key), Value: []byte(value),
			Headers: kafka.Headers(record.Headers{Kind: kind, RunID: run, Seq: -1}),
		}
		if by.Sign(m); by == nil {
			forged = append(forged, m)
		}
		all = append(all, m)
	}
	const custom = `{"type":"CUSTOM","name":%q,"value":1}`
	say(k.IngestKeys, record.KindEvent, "long", `{"type":"RUN_STARTED","threadId":"t2","runId":"long"}`)
	for range 2 * record.MaxRanges {
		say(nil, record.KindEvent, "long", fmt.Sprintf(custom, "forged"))
		say(k.IngestKeys, record.KindEvent, "long", fmt.Sprintf(custom, "own"))
	}
	end := len(all)
	say(k.IngestKeys, record.KindEvent, "long", `{"type":"RUN_FINISHED","threadId":"t2","runId":"long"}`)
	say(nil, record.KindEvent, "long", `{"type":"RUN_ERROR","message":"forged"}`)
	say(nil, record.KindEvent, "evil", `{"type":"RUN_STARTED","threadId":"t2","runId":"forged"}`)
	say(nil, record.KindEvent, "evil", `{"type":"RUN_FINISHED","threadId":"t2","runId":"forged"}`)
	say(nil, record.KindErase, "", `{}`)
	erasure := len(all) - 1
	say(k.IngestKeys, record.KindEvent, "next", `{"type":"RUN_STARTED","threadId":"t2","runId":"next"}`)
	say(k.IngestKeys, record.KindEvent, "next", `{"type":"RUN_FINISHED","threadId":"t2","runId":"next"}`)
	kafkatest.Produce(s.t, unkeyed, all...)

	api := s.stages[1]
	site.Eventually(s.t, "the index has what is behind", func() (string, bool) {
		got := get(api, "/v1/threads/t2")
		return got.String(), strings.Contains(got.body, `"lastRunId":"next","status":"finished"`)
	})
	at := func(i int) string {
		return record.Position{Partition: all[i].Partition, Offset: all[i].Offset}.String()
	}
	auth := tenant.OpenKeyFile(s.keys, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	away := httptest.NewServer(site.Query(s.t, k, awayStore{st}, auth, func(*query.Config) {}).Handler())
	s.t.Cleanup(away.Close)
	const most = 2 * record.MaxRanges
	for _, of := range []struct {
		st          stage
		path, after string
		own         int
	}{
		{api, "/v1/threads/t2/runs/long/events", "", most},
		{api, "/v1/threads/t2/runs/long/events?from=" + at(3), "", most - 1}, // at a forged one
		{api, "/v1/threads/t2/runs/long/stream", at(0), most},
		{api, "/v1/threads/t2/stream", at(0), most},
		{stage{"query without its store", away.URL, nil}, "/v1/threads/t2/runs/long/stream", at(0), most},
		{stage{"query without its store", away.URL, nil}, "/v1/threads/t2/runs/long/stream", at(end), 0},
	} {
		if got := get(of.st, of.path, of.after); strings.Count(got.body, `"own"`) != of.own {
			s.t.Errorf("%s of %s after %q has %d events of %d: %s", of.path, of.st.name, of.after, strings.Count(got.body, `"own"`), of.own, got)
		}
	}
	if got := get(api, "/v1/erasures/"+at(erasure)); got.status != http.StatusNotFound {
		s.t.Errorf("a forged erasure is answered %s", got)
	}
	return forged
}

// awayStore does not answer streams.
type awayStore struct{ store.Reader }

func (awayStore) IndexedTo(context.Context, string) (map[int32]int64, error) {
	return nil, errors.New("away")
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
