package e2e_test

import (
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/client"
	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/conformance"
)

var seed = flag.Uint64("seed", 0, "the order of publishing; 0 draws one")

// Every recorded run goes in through the HTTP door, with the compactor and the indexer killed once each
// on the way, and comes out of the HTTP API as the official client holds it: each run once, nothing in
// the dead letters.
func TestPipeline_GivesBackWhatTheOfficialClientHolds(t *testing.T) {
	for name, start := range map[string]func(*testing.T) ends{
		"embedded broker and SQLite":     embeddedEnds,
		"real Kafka and real ClickHouse": realEnds,
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("-short is set: this starts every stage as a process")
			}
			testPipeline(t, start(t))
		})
	}
}

func testPipeline(t *testing.T, e ends) {
	t.Logf("ends: %s", e.versions)
	began := time.Now()
	elapsed := func() time.Duration { return time.Since(began).Round(100 * time.Millisecond) }
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("go on with this order: -seed %d", s)
	rng := rand.New(rand.NewPCG(s, 0))

	p := startPipeline(t, e)
	t.Logf("%v: the stages are ready", elapsed())
	threads := recordings.All()
	rng.Shuffle(len(threads), func(i, j int) { threads[i], threads[j] = threads[j], threads[i] })
	total := 0
	for _, thread := range threads {
		for _, run := range thread.Runs {
			total += len(run.Lines())
		}
	}
	var killedCompactor, killedIndexer bool
	pub := &publisher{door: p.door, rng: rng, before: func(sent int) {
		if !killedCompactor && sent > total/3 {
			killedCompactor = true
			p.compactor.end(os.Kill)
			p.startCompactor()
		}
		if !killedIndexer && sent > total/2 {
			killedIndexer = true
			p.indexer.end(os.Kill)
			p.startIndexer()
		}
	}}
	if err := pub.publish(t.Context(), threads); err != nil {
		t.Fatal(err)
	}
	if !killedCompactor || !killedIndexer {
		t.Fatal("nothing was killed")
	}
	t.Logf("%v: %d events of %d threads are published", elapsed(), pub.sent, len(threads))

	for _, thread := range threads {
		checkThread(t, p, pub, thread)
	}
	t.Logf("%v: every run's history was read", elapsed())
	checkTopics(t, e.kafka, threads)
	p.topics("check", "--partitions", strconv.Itoa(partitions), "--replication", strconv.Itoa(e.replication))
	t.Logf("%v: topics were checked", elapsed())
	p.stop()
}

// checkThread compares every run's history with the official client's.
func checkThread(t *testing.T, p *pipeline, pub *publisher, thread recordings.Thread) {
	t.Helper()
	want, err := conformance.Expected(thread)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i, run := range thread.Runs {
		ids = append(ids, run.RunID)
		body := p.read(client.RunPath(run.ThreadID, run.RunID)+"/history", pub.last[runKey{run.ThreadID, run.RunID}])
		var got conformance.Conversation
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		if got, err = conformance.Mask(thread, got); err != nil {
			t.Fatal(err)
		}
		if d := conformance.Diff(want[i].Conversation, got); d != "" {
			t.Errorf("%s: %s", run.File, d)
		}
	}
	var lineage struct {
		Runs []struct {
			RunID string `json:"runId"`
		} `json:"runs"`
	}
	if err := json.Unmarshal(p.read(client.ThreadPath(thread.ThreadID)+"/lineage", ""), &lineage); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, run := range lineage.Runs {
		got = append(got, run.RunID)
	}
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		t.Errorf("%s: its runs are %q, want %q", thread, got, ids)
	}
}

// read asks the API until its index has reached a position.
func (p *pipeline) read(path, atLeast string) []byte {
	p.t.Helper()
	q := url.Values{}
	if atLeast != "" {
		q.Set("atLeast", atLeast)
	}
	return eventually(p.t, path+" at "+atLeast, func() ([]byte, bool) {
		body, err := p.api.Get(p.t.Context(), path, q)
		var behind *client.Error
		switch {
		case err == nil:
			return body, true
		case client.IsNotFound(err), errors.As(err, &behind) && behind.Status == 425:
			return []byte(err.Error()), false
		}
		p.t.Fatal(err)
		return nil, false
	})
}

// checkTopics wants each run sealed once in skein.runs, and no dead letters.
func checkTopics(t *testing.T, cfg kafka.Config, threads []recordings.Thread) {
	t.Helper()
	sealed := make(map[string]int)
	for _, r := range kafkatest.Consume(t, cfg, cfg.Topics().Runs) {
		h, err := kafka.ParseHeaders(r.Headers)
		if err != nil {
			t.Fatal(err)
		}
		if h.Kind != record.KindRun {
			continue
		}
		run, err := record.DecodeRun(r.Value)
		if err != nil {
			t.Fatal(err)
		}
		if run.Status != record.StatusRunning {
			sealed[string(r.Key)]++
		}
	}
	for _, thread := range threads {
		for _, run := range thread.Runs {
			key, err := record.RunKey(tenantID, run.ThreadID, run.RunID)
			if err != nil {
				t.Fatal(err)
			}
			if sealed[key] != 1 {
				t.Errorf("%s: %d sealed records", run.File, sealed[key])
			}
			delete(sealed, key)
		}
	}
	for key := range sealed {
		t.Errorf("a run that nobody published: %s", key)
	}
	for _, r := range kafkatest.Consume(t, cfg, cfg.Topics().DeadLetters) {
		t.Errorf("dead letter %s: %s", r.Key, deadReason(r))
	}
}

func deadReason(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == record.HeaderReason {
			return string(h.Value)
		}
	}
	return "no reason"
}
